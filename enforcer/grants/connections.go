package grants

import (
	"net/netip"
	"time"

	"github.com/namegate/namegate/policy"
)

// Connection is a tracked connection that was admitted and answered, for TCP an established
// one.
type Connection struct {
	Source   netip.Addr
	Dialled  netip.AddrPort // before address translation
	Protocol policy.Protocol
	Idle     time.Duration // since its last packet, 0 where that is not known
}

// connections are the tracked connections of the last listing, by source and dialled address.
type connections struct {
	listed monotonic // 0: never
	all    map[[2]netip.Addr][]Connection
}

// listConnections lists connections unless the last listing counts still.
func (t *Table) listConnections() error {
	t.listing.Lock()
	defer t.listing.Unlock()
	now := t.cfg.Clock.read().now
	if last := t.tracked.Load(); last != nil && now-last.listed < monotonic(connectionsEvery) || t.cfg.Connections == nil {
		return nil
	}
	next := &connections{listed: now, all: map[[2]netip.Addr][]Connection{}}
	err := t.cfg.Connections(func(c Connection) {
		key := [2]netip.Addr{c.Source, c.Dialled.Addr()}
		next.all[key] = append(next.all[key], c)
	})
	if err != nil {
		return err
	}
	t.tracked.Store(next)
	return nil
}

// active tells whether a connection that a grant opens was active since a moment. A listing from
// before that moment tells it of connections that were active shortly before the listing.
func (t *Table) active(g *grant, since monotonic) bool {
	tracked, s := t.tracked.Load(), g.set
	if tracked == nil || s.of == nil {
		return false
	}
	if since > tracked.listed {
		since = tracked.listed - monotonic(connectionsEvery)
	}
	sources := s.of.addrs
	if s.key.Rule != "" {
		sources = []netip.Addr{s.subject}
	}
	for _, source := range sources {
		for _, c := range tracked.all[[2]netip.Addr{source, g.address()}] {
			if tracked.listed-monotonic(c.Idle) >= since && s.key.Ports.Contains(c.Protocol, c.Dialled.Port()) {
				return true
			}
		}
	}
	return false
}
