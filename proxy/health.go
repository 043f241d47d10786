package proxy

import (
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// probeEvery is how often an upstream that let a query go unanswered is asked
// whether it answers at all, and how long it may take to say so.
const probeEvery = 250 * time.Millisecond

// doubtAfter is how long an upstream may say nothing to anybody before it is
// probed: an endpoint that died silently is known to be down when the first query
// that it swallowed goes elsewhere.
const doubtAfter = 150 * time.Millisecond

// health tells whether an upstream answers. A query that goes unanswered proves
// nothing, since the name's own servers may be what is silent: it starts a probe,
// and only probes count.
type health struct {
	fails   atomic.Int32 // probes in a row
	probing atomic.Bool
	heard   atomic.Int64 // when it last answered anything, Unix nanoseconds
}

// failed counts a try without a reply, and starts probes if none are under way.
// Without a bound nothing is ever down, and nothing probed.
func (u *upstream) failed(most int) {
	u.stats.UpstreamFailures.Add(1)
	u.suspect(most)
}

// doubted starts probes if nobody was answered since a query that waits was sent.
func (u *upstream) doubted(since time.Time, most int) {
	if u.heard.Load() < since.UnixNano() {
		u.suspect(most)
	}
}

func (u *upstream) suspect(most int) {
	if most > 0 && u.probing.CompareAndSwap(false, true) {
		go u.probe()
	}
}

func (u *upstream) answered() {
	u.fails.Store(0)
	u.heard.Store(time.Now().UnixNano())
}

func (u *upstream) down(most int) bool { return most > 0 && int(u.fails.Load()) >= most }

// probe asks for the root's name servers until there is any reply.
func (u *upstream) probe() {
	defer u.probing.Store(false)
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	a := ask{Question: Question{Type: dns.TypeNS, Class: dns.ClassINET}, recurse: true}
	for !u.gone() {
		if _, err := u.overUDP(a.wire(randomID()), a.questionEnd(), attempt{udp: time.Now().Add(probeEvery)}); err == nil {
			u.answered()
			return
		}
		u.fails.Add(1)
		select {
		case <-u.here.Done():
		case <-tick.C:
		}
	}
}
