package upstream

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
)

// Answer is an upstream's answer. The message is shared by all queries for it and must
// not be changed.
type Answer struct {
	Msg  *dns.Msg
	From netip.AddrPort
}

var errBusy = errors.New("its max_concurrent queries are under way")

// Zone is one zone of the configuration with its upstreams, which may change while
// queries are in flight.
type Zone struct {
	pool     *Pool
	name     fqdn.Name
	of       netip.Addr // of Forward
	routes   atomic.Pointer[routes]
	turn     atomic.Uint32 // of the round robin
	inFlight atomic.Int32  // queries
}

// routes are the upstreams of a zone from one change to the next.
type routes struct {
	zone    *corefile.Zone
	first   []*upstream
	last    []*upstream   // asked when none of the first has answered
	changed chan struct{} // closed when other routes take their place
	// orders are the orders that the zone's policy may begin with, while no upstream is down.
	orders [][]*upstream
}

// maxOrders bounds the upstreams of a zone whose orders are kept.
const maxOrders = 32

func newRoutes(config *corefile.Zone, first, last []*upstream) *routes {
	r := &routes{zone: config, first: first, last: last, changed: make(chan struct{})}
	begins := len(first)
	if config.Policy == corefile.Sequential || begins == 0 {
		begins = 1
	}
	if begins <= maxOrders {
		for i := range begins {
			r.orders = append(r.orders, slices.Concat(first[i:], first[:i], last))
		}
	}
	return r
}

// set replaces the upstreams if they changed. Queries in flight go on at the new ones.
func (z *Zone) set(config *corefile.Zone, first, last []*upstream) {
	if r := z.routes.Load(); r != nil && r.zone == config && slices.Equal(r.first, first) && slices.Equal(r.last, last) {
		return
	}
	z.replace(newRoutes(config, first, last))
}

func (z *Zone) replace(r *routes) {
	if old := z.routes.Swap(r); old != nil && old != r {
		close(old.changed)
	}
}

// resolve is Start for a caller that waits.
func (z *Zone) resolve(q wire.Query) (Answer, error) {
	w := waiters.Get().(*waiter)
	z.Start(q, w, nil)
	<-w.done
	answer, err := w.answer, w.err
	w.answer, w.err = Answer{}, nil
	waiters.Put(w)
	return answer, err
}

// waiter is the Responder of a goroutine that waits.
type waiter struct {
	done   chan struct{} // has one at the end
	answer Answer
	err    error
}

var waiters = sync.Pool{New: func() any { return &waiter{done: make(chan struct{}, 1)} }}

// Packet implements Responder.
func (w *waiter) Packet([]byte, netip.AddrPort) bool { return false }

// Done implements Responder.
func (w *waiter) Done(a Answer, err error) {
	w.answer, w.err = a, err
	w.done <- struct{}{}
}

// Passed tells whether the response code says that another upstream may know better.
func Passed(rcode int) bool {
	switch rcode {
	case dns.RcodeServerFailure, dns.RcodeRefused, dns.RcodeNotImplemented, dns.RcodeFormatError:
		return true
	}
	return false
}

// order returns the upstreams in the order of the zone's policy, then the last resort,
// and behind all of them the upstreams that are down. It is shared and must not be
// changed.
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
