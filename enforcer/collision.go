package enforcer

import (
	"context"
	"errors"
	"fmt"

	"github.com/namegate/namegate/kernel/nft"
)

// checkMark refuses a mark bit that a rule of another program uses.
func (e *Enforcer) checkMark(ctx context.Context) error {
	use, read, err := e.plane.Survey(ctx)
	if err != nil {
		return err
	}
	if use != "" {
		return e.markTaken(use)
	}
	use, err = e.k.Tables.MarkUse(ctx, e.cfg.Mark, func(n nft.Table) bool { return read(n.Family, n.Name) })
	if err == nil && use != "" {
		err = e.markTaken("nft " + use)
	}
	return err
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
