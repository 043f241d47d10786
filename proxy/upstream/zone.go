package upstream

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
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
}

// set replaces the upstreams if they changed. Queries in flight go on at the new ones.
func (z *Zone) set(config *corefile.Zone, first, last []*upstream) {
	if r := z.routes.Load(); r != nil && r.zone == config && slices.Equal(r.first, first) && slices.Equal(r.last, last) {
		return
	}
	z.replace(&routes{zone: config, first: first, last: last, changed: make(chan struct{})})
}

func (z *Zone) replace(r *routes) {
	if old := z.routes.Swap(r); old != nil && old != r {
		close(old.changed)
	}
}

// Passed tells whether the response code says that another upstream may know better.
func Passed(rcode int) bool {
	switch rcode {
	case dns.RcodeServerFailure, dns.RcodeRefused, dns.RcodeNotImplemented, dns.RcodeFormatError:
		return true
	}
	return false
}

// order appends the upstreams in the order of the zone's policy, then the last resort,
// and behind all of them the upstreams that are down.
func (z *Zone) order(r *routes, out []*upstream) []*upstream {
	n := len(r.first)
	begin := 0
	switch {
	case n < 2 || r.zone.Policy == corefile.Sequential:
	case r.zone.Policy == corefile.RoundRobin:
		begin = int(z.turn.Add(1)-1) % n
	default:
		begin = rand.IntN(n)
	}
	var down []*upstream
	for _, list := range [][]*upstream{r.first[begin:], r.first[:begin], r.last} {
		for _, u := range list {
			if u.down(r.zone.MaxFails) {
				down = append(down, u)
			} else {
				out = append(out, u)
			}
		}
	}
	return append(out, down...)
}
