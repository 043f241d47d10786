package proxy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
)

// found is an upstream's answer. The message is shared by everyone who asked the
// same and must not be changed.
type found struct {
	msg  *dns.Msg
	from netip.AddrPort
}

// resolver answers what a client asks, from upstream. Stages wrap each other:
// one identical query at a time around the forwards; a cache would go around that.
type resolver interface {
	resolve(a wire.Query) (found, error)
}

var (
	errNoZone = errors.New("no forward covers the name")
	errBusy   = errors.New("its max_concurrent queries are under way")
)

// zones is the resolver that picks the longest zone.
type zones struct {
	config   *corefile.Config
	forwards []*forward // in the order of config.Zones
}

func (z *zones) resolve(a wire.Query) (found, error) {
	if f := z.forward(a.Name); f != nil {
		return f.resolve(a)
	}
	return found{}, errNoZone
}

// forward returns the forward of the longest zone of a name, nil if none covers it.
func (z *zones) forward(n fqdn.Name) *forward {
	for i, f := range z.forwards {
		if n.HasSuffix(z.config.Zones[i].Name) {
			return f
		}
	}
	return nil
}

// forward is one zone's upstreams. They may change while queries run.
type forward struct {
	routes atomic.Pointer[routes]
	turn   atomic.Uint32 // of the round robin
	under  atomic.Int32  // queries under way
}

// routes are the upstreams of a zone from one change to the next.
type routes struct {
	zone    *corefile.Zone
	first   []*upstream
	last    []*upstream   // asked when none of the first has answered
	changed chan struct{} // closed when others took their place
	stats   *counters     // nil without upstreams
	// orders are those that the zone's policy may begin with, while nobody is down.
	orders [][]*upstream
}

// ordersMost bounds the upstreams of a zone whose orders are kept.
const ordersMost = 32

func newRoutes(z *corefile.Zone, first, last []*upstream) *routes {
	r := &routes{zone: z, first: first, last: last, changed: make(chan struct{})}
	for _, u := range slices.Concat(first, last) {
		r.stats = u.stats
	}
	begins := len(first)
	if z.Policy == corefile.Sequential || begins == 0 {
		begins = 1
	}
	if begins <= ordersMost {
		for i := range begins {
			r.orders = append(r.orders, slices.Concat(first[i:], first[:i], last))
		}
	}
	return r
}

// set replaces the upstreams, if they are others. Queries under way go on by the new ones.
func (f *forward) set(z *corefile.Zone, first, last []*upstream) {
	if r := f.routes.Load(); r != nil && r.zone == z && slices.Equal(r.first, first) && slices.Equal(r.last, last) {
		return
	}
	f.take(newRoutes(z, first, last))
}

func (f *forward) take(r *routes) {
	if old := f.routes.Swap(r); old != nil && old != r {
		close(old.changed)
	}
}

// resolve asks the upstreams, unless too many queries are under way at them.
func (f *forward) resolve(a wire.Query) (found, error) {
	t := f.begin()
	n := f.under.Add(1)
	defer f.under.Add(-1)
	if z := t.r.zone; z.MaxConcurrent > 0 && int(n) > z.MaxConcurrent {
		if t.r.stats != nil {
			t.r.stats.ShedZone.Add(1)
		}
		return found{}, fmt.Errorf("ask the upstreams of zone %s: %w", z.Name, errBusy)
	}
	return t.resolve(a)
}

// short tells whether the zone's queries may take the short way.
func (f *forward) short() bool {
	z := f.routes.Load().zone
	return z.MaxConcurrent == 0 && !z.ForceTCP
}

// passed tells whether the response code says that another upstream may know better.
func passed(rcode int) bool {
	switch rcode {
	case dns.RcodeServerFailure, dns.RcodeRefused, dns.RcodeNotImplemented, dns.RcodeFormatError:
		return true
	}
	return false
}

// order returns the upstreams in the order of the zone's policy, then those of
// the last resort, and those that failed lately behind all others. It is shared and
// must not be changed.
func (f *forward) order(r *routes) []*upstream {
	n := len(r.first)
	begin := 0
	switch {
	case n < 2:
	case r.zone.Policy == corefile.Random:
		begin = rand.IntN(n)
	case r.zone.Policy == corefile.RoundRobin:
		begin = int(f.turn.Add(1)-1) % n
	}
	if len(r.orders) > begin && !slices.ContainsFunc(r.orders[begin], func(u *upstream) bool { return u.down(r.zone.MaxFails) }) {
		return r.orders[begin]
	}
	up, down := make([]*upstream, 0, n+len(r.last)), []*upstream(nil)
	add := func(u *upstream) {
		if u.down(r.zone.MaxFails) {
			down = append(down, u)
			return
		}
		up = append(up, u)
	}
	for i := range n {
		add(r.first[(begin+i)%n])
	}
	for _, u := range r.last {
		add(u)
	}
	return append(up, down...)
}
