package proxy

import (
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// probeEvery is how often an upstream that let a query go unanswered is asked
// whether it answers at all, and how long it may take to say so.
const probeEvery = 500 * time.Millisecond

// health tells whether an upstream answers. A query that goes unanswered proves
// nothing, since the name's own servers may be what is silent: it starts a probe,
// and only probes count.
type health struct {
	fails   atomic.Int32 // probes in a row
	probing atomic.Bool
}

// failed counts a try without a reply, and starts probes if none are under way.
// Without a bound nothing is ever down, and nothing probed.
func (u *upstream) failed(most int) {
	u.stats.UpstreamFailures.Add(1)
	if most > 0 && u.probing.CompareAndSwap(false, true) {
		go u.probe()
	}
}

func (u *upstream) answered() { u.fails.Store(0) }

func (u *upstream) down(most int) bool { return most > 0 && int(u.fails.Load()) >= most }

// probe asks for the root's name servers until there is any reply.
func (u *upstream) probe() {
	defer u.probing.Store(false)
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	a := ask{Question: Question{Type: dns.TypeNS, Class: dns.ClassINET}, recurse: true}
	for {
		if _, err := u.overUDP(a.wire(randomID()), a.questionEnd(), time.Now().Add(probeEvery)); err == nil {
			u.answered()
			return
		}
		u.fails.Add(1)
		select {
		case <-u.done:
			return
		case <-tick.C:
		}
	}
}
