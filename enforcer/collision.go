package enforcer

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/nft"
)

// recoverPlanes has the dataplanes find what an earlier agent left, and returns the addresses that it
// isolated. It refuses mark bits that a rule of another program uses.
func (e *Enforcer) recoverPlanes(ctx context.Context) (isolated []netip.Addr, err error) {
	planes := []dataplane.Interface{e.plane.Interface}
	if e.plane.counts.Load() {
		planes = append(planes, e.plane.other)
	}
	var all []dataplane.Recovered
	for _, p := range planes {
		found, err := p.Recover(ctx)
		if err != nil {
			return nil, err
		}
		all, isolated = append(all, found), append(isolated, found.Isolated...)
	}
	return isolated, e.checkMark(func(n nft.ID) bool {
		return slices.ContainsFunc(all, func(r dataplane.Recovered) bool { return r.Read != nil && r.Read(n.Family, n.Name) })
	})
}

// checkMark refuses mark bits that a rule of another program's nft tables uses, but for those that are read.
func (e *Enforcer) checkMark(read func(nft.ID) bool) error {
	e.unread = nil
	for _, bit := range e.cfg.bits() {
		rule, unread, err := e.k.Tables.MarkUse(bit, read)
		if err != nil {
			return err
		}
		if rule != "" {
			return &dataplane.BitUse{Bit: bit, Rule: "nft " + rule}
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

// IsMarkTaken tells whether err says that another program uses the mark bit: another
// try of Start ends the same.
func IsMarkTaken(err error) bool {
	var use *dataplane.BitUse
	return errors.As(err, &use)
}
