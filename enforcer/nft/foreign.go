package nft

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// MarkUse returns the first rule of another program's nftables chain that reads
// or writes one bit of packet or connection marks, as "TABLE CHAIN: RULE", ""
// without one. A packet mark that is written whole with the bit clear does not
// count: it can take an allowance away and not give one. Chains whose names begin
// with own are ours, kept by iptables in nftables.
func (t *Tables) MarkUse(ctx context.Context, bit uint32, own string) (string, error) {
	if t.list == nil {
		return "", nil
	}
	ruleset, err := t.list(ctx)
	if err != nil {
		return "", err
	}
	return markUse(ruleset, bit, own), nil
}

// listRuleset prints all tables, numbers as numbers and without what counts packets.
func listRuleset(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "nft", "-n", "-s", "-t", "list", "ruleset").Output()
	if err != nil {
		return "", fmt.Errorf("list the nft ruleset: %w", err)
	}
	return string(out), nil
}

func markUse(ruleset string, bit uint32, own string) string {
	var table, chain string
	for line := range strings.Lines(ruleset) {
		words := strings.Fields(line)
		switch {
		case len(words) >= 3 && words[0] == "table":
			table, chain = words[1]+" "+words[2], ""
		case len(words) >= 2 && words[0] == "chain":
			chain = words[1]
		case !strings.HasSuffix(table, " "+TableName) && !strings.HasPrefix(chain, own) && usesMark(words, bit):
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
