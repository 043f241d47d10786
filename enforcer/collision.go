package enforcer

import (
	"context"
	"errors"
	"fmt"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/kernel/nft"
)

// checkMark refuses a mark bit that a rule of another program uses, by whichever
// variant of iptables.
func (e *Enforcer) checkMark(ctx context.Context, found []iptables.Everything) error {
	read := map[nft.Table]bool{}
	for _, all := range found {
		if by := all.MarkUse(e.cfg.Mark, xtables.ChainPrefix); by != "" {
			return e.markTaken(by)
		}
		for f, tables := range all {
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
