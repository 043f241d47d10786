package nft

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// Table is a table of one family.
type Table struct{ Family, Name string }

// MarkUse returns the first rule of another program's nftables chain that reads
// or writes one bit of packet or connection marks, as "TABLE CHAIN: RULE", ""
// without one. A packet mark that is written whole with the bit clear does not
// count: it can take an allowance away and not give one. Tables that are known
// already, as iptables' own are, are not read again: nft takes seconds for what
// iptables wrote there.
func (t *Tables) MarkUse(ctx context.Context, bit uint32, known func(Table) bool) (string, error) {
	if t.list == nil {
		return "", nil
	}
	tables, err := t.kernel.tableNames()
	if err != nil {
		return "", err
	}
	for _, n := range tables {
		if n.Name == TableName || n.Name == NetTableName || known(n) {
			continue
		}
		text, err := t.list(ctx, n)
		if err != nil {
			return "", err
		}
		if use := markUse(text, bit); use != "" {
			return use, nil
		}
	}
	return "", nil
}

// listTable prints a table, numbers as numbers and without packet counters; a missing
// table is empty.
func (k kernel) listTable(ctx context.Context, n Table) (string, error) {
	out, err := exec.CommandContext(ctx, "nft", "-n", "-s", "-t", "list", "table", n.Family, n.Name).Output()
	if err == nil {
		return string(out), nil
	}
	if now, listErr := k.tableNames(); listErr == nil && !slices.Contains(now, n) {
		return "", nil
	}
	return "", fmt.Errorf("list nft table %s %s: %w", n.Family, n.Name, err)
}

func markUse(ruleset string, bit uint32) string {
	var table, chain string
	for line := range strings.Lines(ruleset) {
		words := strings.Fields(line)
		switch {
		case len(words) >= 3 && words[0] == "table":
			table, chain = words[1]+" "+words[2], ""
		case len(words) >= 2 && words[0] == "chain":
			chain = words[1]
		case usesMark(words, bit):
			return table + " " + chain + ": " + strings.Join(words, " ")
		}
	}
	return ""
}

// usesMark judges one rule.
func usesMark(words []string, bit uint32) bool {
	for i, w := range words {
		if w != "mark" {
			continue
		}
		connection := i > 0 && words[i-1] == "ct"
		rest := words[i+1:]
		if len(rest) > 0 && rest[0] == "set" {
			return setsBit(rest[1:], connection, bit)
		}
		if len(rest) > 0 && readsBit(rest, bit) {
			return true
		}
	}
	return false
}

// setsBit judges what follows "mark set": a value, or a mark with masks.
func setsBit(words []string, connection bool, bit uint32) bool {
	if len(words) == 0 {
		return false
	}
	if value, ok := number(words[0]); ok {
		return connection || value&bit != 0
	}
	touched, masked := false, false
	for i, w := range words[:len(words)-1] {
		value, ok := number(words[i+1])
		switch {
		case !ok:
		case w == "and" || w == "&":
			touched, masked = touched || value&bit == 0, true
		case w == "or" || w == "|" || w == "xor" || w == "^":
			touched, masked = touched || value&bit != 0, true
		}
	}
	return touched || !masked // a mark copied whole
}

// readsBit judges what follows "mark" in a match: a mask, or a whole value.
func readsBit(words []string, bit uint32) bool {
	for i, w := range words[:min(3, len(words))] {
		value, ok := number(w)
		if !ok {
			continue
		}
		whole := i == 0 || words[i-1] == "==" || words[i-1] == "!="
		return value&bit != 0 || whole && value == 0
	}
	return false
}

func number(s string) (uint32, bool) {
	v, err := strconv.ParseUint(s, 0, 32)
	return uint32(v), err == nil
}
