package proxy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
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

var errNoZone = errors.New("no forward covers the name")

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

// forward is one zone's upstreams.
type forward struct {
	zone *corefile.Zone
	ups  []*upstream
	turn atomic.Uint32 // of the round robin
}

// leastTries is how often a query is sent at least, time permitting: a single
// upstream gets a second chance after a lost packet.
const leastTries = 4

// resolve asks one upstream after the other, those that answer first, until one
// gives an answer or the deadline is over.
func (f *forward) resolve(a ask) (found, error) {
	order := f.order()
	end := time.Now().Add(f.zone.Deadline)
	var refused found
	var last error
	for i := range max(2*len(order), leastTries) {
		try := time.Now().Add(f.zone.Timeout)
		if i > 0 && time.Until(end) <= 0 {
			break
		}
		if try.After(end) {
			try = end
		}
		tcp := end // whole for the last; before, another upstream is to get its turn
		if share := try.Add(f.zone.Timeout); (i+1)%len(order) != 0 && share.Before(end) {
			tcp = share
		}
		u := order[i%len(order)]
		m, err := u.exchange(a, try, tcp)
		if err != nil {
			u.failed(f.zone.MaxFails)
			last = err
			continue
		}
		u.answered()
		if !passed(m.Rcode) {
			return found{m, u.addr}, nil
		}
		refused = found{m, u.addr}
		if i >= len(order)-1 {
			break // everybody was asked, and somebody said no
		}
	}
	if refused.msg != nil {
		return refused, nil
	}
	return found{}, fmt.Errorf("no upstream of zone %s answered in %v: %w", f.zone.Name, f.zone.Deadline, last)
}

// passed tells whether the response code says that another upstream may know better.
func passed(rcode int) bool {
	switch rcode {
	case dns.RcodeServerFailure, dns.RcodeRefused, dns.RcodeNotImplemented, dns.RcodeFormatError:
		return true
	}
	return false
}

// order returns the upstreams in the order of the zone's policy, those that
// failed lately behind the others.
func (f *forward) order() []*upstream {
	n := len(f.ups)
	if n == 1 {
		return f.ups
	}
	first := 0
	switch f.zone.Policy {
	case corefile.Random:
		first = rand.IntN(n)
	case corefile.RoundRobin:
		first = int(f.turn.Add(1)-1) % n
	}
	up, down := make([]*upstream, 0, n), []*upstream(nil)
	for i := range n {
		u := f.ups[(first+i)%n]
		if u.down(f.zone.MaxFails) {
			down = append(down, u)
			continue
		}
		up = append(up, u)
	}
	return append(up, down...)
}
