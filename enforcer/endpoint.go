package enforcer

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/kernel/nft"
)

// Generations serve on addresses beside the default endpoint: the rest of its
// /24 from .64 on, and for IPv6 a block of 256 below the same prefix.
var (
	firstServing4 = netip.MustParseAddr("169.254.20.64")
	lastServing4  = netip.MustParseAddr("169.254.20.254")
	firstServing6 = netip.MustParseAddr("fd5c:7a1e:93b4::1:0")
	lastServing6  = netip.MustParseAddr("fd5c:7a1e:93b4::1:ff")
)

// raiseEndpoint removes the serving addresses that an earlier agent left, and
// raises those of the configured resolvers.
func (e *Enforcer) raiseEndpoint() ([]netip.Addr, error) {
	taken, err := e.k.Links.Addrs()
	if err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(slices.Clone(taken), func(a netip.Addr) bool { return !servingRange(a) })
	e.predecessor.Find(own, e.k.Tables.GivenBack())
	e.dropAbandoned(own)
	e.raised = map[netip.Addr]netip.Addr{}
	if err := e.raise(e.cfg.Resolvers); err != nil {
		return nil, err
	}
	e.serving = maps.Clone(e.raised)
	return sortedValues(e.serving), nil
}

// dropAbandoned removes the serving addresses that no agent serves any more.
func (e *Enforcer) dropAbandoned(own []netip.Addr) {
	for _, a := range own {
		if e.predecessor.Serves(a) {
			continue
		}
		if err := e.k.Links.DelAddr(a); err != nil {
			e.log.Warn("an address of an earlier agent stays", "address", a, "error", err)
		}
	}
}

// ServingRanges returns prefixes that hold every address that a generation may
// serve on, IPv4 and IPv6.
func ServingRanges() []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(firstServing4, 24).Masked(), netip.PrefixFrom(firstServing6, 112).Masked()}
}

func servingRange(a netip.Addr) bool {
	return a.Compare(firstServing4) >= 0 && a.Compare(lastServing4) <= 0 && a.Is4() ||
		a.Compare(firstServing6) >= 0 && a.Compare(lastServing6) <= 0 && a.Is6()
}

func freeAddr(v6 bool, taken []netip.Addr) (netip.Addr, error) {
	first, last := firstServing4, lastServing4
	if v6 {
		first, last = firstServing6, lastServing6
	}
	for a := first; a.Compare(last) <= 0; a = a.Next() {
		if !slices.Contains(taken, a) {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("every serving address from %s to %s is taken; remove those of agents that are gone", first, last)
}

// Stop takes this generation's serving addresses away, after KeepAlive has ended.
// The virtual ones stay: pods that are pointed at them are answered by the
// resolver meanwhile. Enforcement stays too.
func (e *Enforcer) Stop() {
	e.apply.Lock()
	defer e.apply.Unlock()
	for _, a := range e.raised {
		if err := e.k.Links.DelAddr(a); err != nil {
			e.log.Warn("a serving address stays", "address", a, "error", err)
		}
	}
}

// heartbeat is how often interception is renewed; a third of the switch's
// timeout leaves room for one that fails.
const heartbeat = time.Second

// beatMost bounds a heartbeat: one that begins when it is due and takes this long still
// renews interception in time. A node without processor time has queries that are
// answered late, and those are better than none.
const beatMost = nft.HeartbeatTimeout - heartbeat

// KeepAlive renews interception once a second for as long as probe succeeds; it
// must ask the proxy's own serving sockets. When interception comes back after it
// had ended, returned is called: pods were answered by the resolver meanwhile. It
// returns when ctx ends; interception goes on for nft.HeartbeatTimeout unless Disable is called.
func (e *Enforcer) KeepAlive(ctx context.Context, probe func(context.Context) error, returned func()) error {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	failing, last := false, e.now()
	for {
		began := e.now()
		err := e.beat(ctx, probe)
		if ctx.Err() != nil {
			return nil
		}
		failing = e.tell(failing, began, err)
		if now := e.now(); err == nil {
			if now.Sub(last) > nft.HeartbeatTimeout {
				go returned()
			}
			last = now
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-e.renew:
		}
	}
}

// renewHeartbeat has interception renewed at once: a table that was made anew begins
// without. It never waits.
func (e *Enforcer) renewHeartbeat() {
	select {
	case e.renew <- struct{}{}:
	default:
	}
}

// TakenOver tells whether the kernel leads pods' queries to another agent.
func (e *Enforcer) TakenOver(ctx context.Context) (bool, error) {
	now, err := e.k.Tables.Serving(ctx)
	if err != nil {
		return false, err
	}
	e.apply.Lock()
	defer e.apply.Unlock()
	others := false
	for dialled, serving := range e.serving {
		switch at, ok := now[dialled]; {
		case ok && at == serving:
			return false, nil
		case ok:
			others = true
		}
	}
	return others, nil
}

// Disable ends interception at once, after KeepAlive: the resolver answers pods while
// no agent does.
func (e *Enforcer) Disable(ctx context.Context) error { return e.k.Tables.Disable(ctx) }

// tell reports a heartbeat that began at a moment and failed, and logs the changes between
// beating and failing, not each beat.
func (e *Enforcer) tell(failing bool, began time.Time, err error) bool {
	if err != nil {
		e.drift.report(fromHeartbeat, began, err, "heartbeat")
	} else {
		e.drift.report(fromHeartbeat, began, nil)
	}
	switch {
	case err != nil && !failing:
		e.suspect() // once: a look takes time that the proxy may want for
		e.log.Error("interception is not renewed and ends until it is", "error", err)
	case err == nil && failing:
		e.log.Info("interception is on again")
	}
	return err != nil
}

func (e *Enforcer) beat(ctx context.Context, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, beatMost)
	defer cancel()
	if err := probe(ctx); err != nil {
		return err
	}
	if err := e.k.Tables.Heartbeat(ctx); err != nil {
		return err
	}
	beaten := e.now()
	e.beaten.Store(&beaten)
	return nil
}
