package iptables

import (
	"fmt"
	"strconv"
	"strings"
)

// MarkUse returns a rule that uses a bit of packet or connection marks, with its family,
// table and chain, "" without one. Chains whose names begin with own do not count, nor
// rules that lead to them.
func (all Everything) MarkUse(bit uint32, own string) string {
	for family, tables := range all {
		for table, chains := range tables {
			for name, rules := range chains {
				for _, r := range rules {
					if !strings.HasPrefix(name, own) && !strings.HasPrefix(Target(r), own) && usesMark(r, bit) {
						return fmt.Sprintf("%s %s: -A %s %s", family, table, name, r)
					}
				}
			}
		}
	}
	return ""
}

// usesMark tells whether a rule, as iptables-save prints it, reads or writes one
// bit of packet or connection marks. A packet mark written whole with the bit
// clear does not count: it can take an allowance away and not give one.
func usesMark(rule string, bit uint32) bool {
	words := strings.Fields(rule)
	connection := strings.Contains(rule, "-j CONNMARK")
	for i, w := range words[:max(len(words)-1, 0)] {
		switch w {
		case "--mark", "--set-xmark", "--set-mark", "--or-mark", "--and-mark", "--xor-mark", "--tproxy-mark":
			value, mask, ok := parseMark(words[i+1])
			whole := w != "--mark" && mask == 1<<32-1 && !connection
			if ok && mask&bit != 0 && !(whole && value&bit == 0) {
				return true
			}
		case "--nfmask", "--ctmask":
			if value, _, ok := parseMark(words[i+1]); ok && value&bit != 0 {
				return true
			}
		}
	}
	// Without masks, saving and restoring copies every bit.
	return (strings.Contains(rule, "--save-mark") || strings.Contains(rule, "--restore-mark")) && !strings.Contains(rule, "mask")
}

func parseMark(s string) (value, mask uint32, ok bool) {
	v, m, masked := strings.Cut(s, "/")
	value64, err := strconv.ParseUint(v, 0, 32)
	if err != nil {
		return 0, 0, false
	}
	mask64 := uint64(1<<32 - 1)
	if masked {
		if mask64, err = strconv.ParseUint(m, 0, 32); err != nil {
			return 0, 0, false
		}
	}
	return uint32(value64), uint32(mask64), true
}
