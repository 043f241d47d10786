package enforcer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/nft"
)

// checkMark refuses mark bits that a rule of another program uses.
func (e *Enforcer) checkMark(ctx context.Context) error {
	use, read, err := e.plane.Survey(ctx)
	if err != nil {
		return err
	}
	if use != nil {
		return &markTaken{*use}
	}
	e.unread = nil
	for _, bit := range []uint32{e.cfg.Mark, e.cfg.Candidate} {
		rule, unread, err := e.k.Tables.MarkUse(bit, func(n nft.Table) bool { return read(n.Family, n.Name) })
		if err != nil {
			return err
		}
		if rule != "" {
			return &markTaken{dataplane.BitUse{Bit: bit, Rule: "nft " + rule}}
		}
		for _, err := range unread {
			if !slices.Contains(e.unread, err.Error()) {
				e.log.Warn("it is unknown whether a table of another program uses the mark bits", "error", err)
				e.unread = append(e.unread, err.Error())
			}
		}
	}
	return nil
}

// markTaken says that another program's rule uses a mark bit.
type markTaken struct{ dataplane.BitUse }

func (m *markTaken) Error() string {
	return fmt.Sprintf("mark bit %#x is used by another rule (%s); choose a free bit with the directive mark in the Corefile", m.Bit, m.Rule)
}

// IsMarkTaken tells whether err says that another program uses the mark bit: another
// try of Start ends the same.
func IsMarkTaken(err error) bool {
	var m *markTaken
	return errors.As(err, &m)
}
