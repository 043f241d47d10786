package marks

import (
	"strconv"
	"strings"
)

// Use returns the first rule of a listing that reads or writes one bit of packet or connection
// marks, as "TABLE CHAIN: RULE", "" without one. A packet mark that is written whole with the bit
// clear does not count: it can take an allowance away and not give one.
func Use(listing string, bit uint32) string {
	var table, chain string
	for line := range strings.Lines(listing) {
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
