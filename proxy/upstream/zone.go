package upstream

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

// Answer is an upstream's answer. The message is shared by all who asked the same and
// must not be changed.
type Answer struct {
	Msg  *dns.Msg
	From netip.AddrPort
}

var errBusy = errors.New("its max_concurrent queries are under way")

// Zone is the upstreams of one zone. They may change while queries run.
type Zone struct {
	pool   *Pool
	name   fqdn.Name
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
	// orders are those that the zone's policy may begin with, while nobody is down.
	orders [][]*upstream
}

// ordersMost bounds the upstreams of a zone whose orders are kept.
const ordersMost = 32

func newRoutes(config *corefile.Zone, first, last []*upstream) *routes {
	r := &routes{zone: config, first: first, last: last, changed: make(chan struct{})}
	begins := len(first)
	if config.Policy == corefile.Sequential || begins == 0 {
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
func (z *Zone) set(config *corefile.Zone, first, last []*upstream) {
	if r := z.routes.Load(); r != nil && r.zone == config && slices.Equal(r.first, first) && slices.Equal(r.last, last) {
		return
	}
	z.take(newRoutes(config, first, last))
}

func (z *Zone) take(r *routes) {
	if old := z.routes.Swap(r); old != nil && old != r {
		close(old.changed)
	}
}

// enter counts a query that begins; the caller counts its end. The error says that too
// many are under way.
func (z *Zone) enter(config *corefile.Zone) error {
	n := z.under.Add(1)
	if config.MaxConcurrent > 0 && int(n) > config.MaxConcurrent {
		z.pool.stats.Shed.Add(1)
		return fmt.Errorf("ask the upstreams of zone %s: %w", config.Name, errBusy)
	}
	return nil
}

// resolve asks the upstreams and waits for the answer.
func (z *Zone) resolve(a wire.Query) (Answer, error) {
	t := z.begin()
	defer z.under.Add(-1)
	if err := z.enter(t.r.zone); err != nil {
		return Answer{}, err
	}
	return t.resolve(a)
}

// Passed tells whether the response code says that another upstream may know better.
func Passed(rcode int) bool {
	switch rcode {
	case dns.RcodeServerFailure, dns.RcodeRefused, dns.RcodeNotImplemented, dns.RcodeFormatError:
		return true
	}
	return false
}

// order returns the upstreams in the order of the zone's policy, then those of
// the last resort, and those that failed lately behind all others. It is shared and
// must not be changed.
func (z *Zone) order(r *routes) []*upstream {
	n := len(r.first)
	begin := 0
	switch {
	case n < 2:
	case r.zone.Policy == corefile.Random:
		begin = rand.IntN(n)
	case r.zone.Policy == corefile.RoundRobin:
		begin = int(z.turn.Add(1)-1) % n
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
