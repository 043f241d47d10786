package proxy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/corefile"
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
	resolve(a ask) (found, error)
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

func (z *zones) resolve(a ask) (found, error) {
	for i, f := range z.forwards {
		if a.Name.HasSuffix(z.config.Zones[i].Name) {
			return f.resolve(a)
		}
	}
	return found{}, errNoZone
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

// resolve asks one upstream after the other, those that answer first, until one
// gives an answer or the deadline is over.
func (f *forward) resolve(a ask) (found, error) {
	t := f.begin()
	n := f.under.Add(1)
	defer f.under.Add(-1)
	if z := t.r.zone; z.MaxConcurrent > 0 && int(n) > z.MaxConcurrent {
		if t.r.stats != nil {
			t.r.stats.ShedZone.Add(1)
		}
		return found{}, fmt.Errorf("ask the upstreams of zone %s: %w", z.Name, errBusy)
	}
	var refused found
	var last error
	for {
		u, resort := t.next()
		if u == nil || resort && refused.msg != nil {
			if refused.msg != nil {
				return refused, nil // everybody was asked, and somebody said no
			}
			if !t.rest() {
				break
			}
			continue
		}
		m, err := u.exchange(a, t.attempt())
		if err != nil {
			t.failed(u, err)
			last = err
			continue
		}
		if !passed(m.Rcode) {
			return found{m, u.addr}, nil
		}
		t.now = time.Now()
		refused = found{m, u.addr}
	}
	return found{}, t.error(last)
}

// ready returns who is asked first at the moment, and how, nil if a query has to
// take the long way.
func (f *forward) ready() (*upstream, attempt) {
	r := f.routes.Load()
	z := r.zone
	if z.MaxConcurrent > 0 || z.ForceTCP || len(r.first) == 0 {
		return nil, attempt{}
	}
	u := f.order(r)[0]
	if u.gone() || u.down(z.MaxFails) {
		return nil, attempt{}
	}
	return u, attempt{maxFails: z.MaxFails, probe: z.Probe}
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
