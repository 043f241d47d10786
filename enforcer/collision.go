package enforcer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/nft"
)

// checkMark refuses a mark bit that a rule of another program uses, by whichever
// variant of iptables.
func (e *Enforcer) checkMark(ctx context.Context, found []iptables.Everything) error {
	read := map[nft.Table]bool{}
	for _, all := range found {
		for f, tables := range all {
			if by := markUser(tables, e.cfg.Mark); by != "" {
				return e.markTaken(f.String() + " " + by)
			}
			for name := range tables {
				read[nft.Table{Family: familyWords[f], Name: name}] = true
			}
		}
	}
	use, err := e.k.Tables.MarkUse(ctx, e.cfg.Mark, func(n nft.Table) bool { return read[n] })
	if err == nil && use != "" {
		err = e.markTaken("nft " + use)
	}
	return err
}

// familyWords are nft's words for the families of iptables' tables.
var familyWords = map[iptables.Family]string{iptables.IPv4: "ip", iptables.IPv6: "ip6"}

// markUser returns another program's rule that uses a bit, "" without one.
func markUser(tables map[string]iptables.Chains, bit uint32) string {
	for table, chains := range tables {
		for name, rules := range chains {
			for _, r := range rules {
				if !strings.HasPrefix(name, xtables.ChainPrefix) && !strings.HasPrefix(iptables.Target(r), xtables.ChainPrefix) && usesMark(r, bit) {
					return fmt.Sprintf("%s: -A %s %s", table, name, r)
				}
			}
		}
	}
	return ""
}

func (e *Enforcer) markTaken(by string) error { return &markTaken{e.cfg.Mark, by} }

// markTaken says that another program's rule uses the mark bit.
type markTaken struct {
	mark uint32
	by   string
}

func (m *markTaken) Error() string {
	return fmt.Sprintf("mark bit %#x is used by another rule (%s); choose a free bit with the directive mark in the Corefile", m.mark, m.by)
}

// IsMarkTaken tells whether err says that another program uses the mark bit: another
// try of Start ends the same.
func IsMarkTaken(err error) bool {
	var m *markTaken
	return errors.As(err, &m)
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
