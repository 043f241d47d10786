package upstream

import (
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

// probeEvery is how often an upstream that is down is probed, where the zone does not say.
const probeEvery = 250 * time.Millisecond

const (
	// retransmitAfter is how long a query waits on a silent socket before it is sent once
	// more, and on a silent upstream before that is probed: an endpoint that died silently
	// is known to be down before the first query that it swallowed has waited for its
	// whole try.
	retransmitAfter = 150 * time.Millisecond
	// confirmWithin is how long the probes take, as many as must fail, until the upstream
	// counts as down. For a distant upstream it is confirmTrips round trips.
	confirmWithin = 150 * time.Millisecond
	confirmTrips  = 3
	// probePatience is how long a probe's answer still counts.
	probePatience = time.Second
)

// health tells whether an upstream answers. A query that goes unanswered proves
// nothing, since the name's own servers may be silent: it starts probes, and only probes
// count.
type health struct {
	fails   atomic.Int32 // probes in a row
	probing atomic.Bool
	heard   atomic.Int64 // when it last answered anything, a time.Duration
	rtt     atomic.Int64 // about the least time from query to answer, a time.Duration
}

// failed counts a try without a reply, and starts probes if none are under way.
// Without a bound nothing is ever down, and nothing probed.
func (u *upstream) failed(by bounds) {
	u.stats.Failures.Add(1)
	u.suspect(by)
}

func (u *upstream) suspect(by bounds) {
	if by.maxFails > 0 && u.probing.CompareAndSwap(false, true) {
		go u.probe(by)
	}
}

// answered notes an answer that came now and took so long.
func (u *upstream) answered(now, took time.Duration) {
	u.heard.Store(int64(now))
	if u.fails.Load() != 0 {
		u.fails.Store(0)
	}
	// It follows a smaller value at once and a greater one slowly: recursion is no part of
	// the round trip.
	rtt := u.rtt.Load()
	switch {
	case rtt == 0 || int64(took) < rtt:
		u.rtt.Store(int64(took))
	case int64(took) > rtt+64:
		u.rtt.Store(rtt + (int64(took)-rtt)/64)
	}
}

func (u *upstream) down(most int) bool { return most > 0 && int(u.fails.Load()) >= most }

// probe asks for the root's name servers again and again until there is any reply. It does
// not wait for one probe before it sends the next.
func (u *upstream) probe(by bounds) {
	defer u.probing.Store(false)
	began := u.now()
	replies := make(chan struct{}, 1)
	every := by.probe
	if every <= 0 {
		every = probeEvery
	}
	confirm := max(confirmWithin, confirmTrips*time.Duration(u.rtt.Load()))
	pace := min(confirm/time.Duration(by.maxFails), every)
	timer := time.NewTimer(pace)
	defer timer.Stop()
	for !u.gone() {
		u.probeOnce(by.forceTCP, replies)
		timer.Reset(pace)
		select {
		case <-u.here.Done():
			return
		case <-replies:
		case <-timer.C:
		}
		if u.heard.Load() >= int64(began) {
			u.fails.Store(0)
			return
		}
		fails := int(u.fails.Add(1))
		u.sockets.moveOn(fails)
		u.conns.moveOn(fails)
		if fails >= by.maxFails {
			pace = every
		}
	}
}

// probeOnce asks on a socket of its own: where the upstream's address is a Service's,
// another socket may be tied to an endpoint that died.
func (u *upstream) probeOnce(tcp bool, replies chan<- struct{}) {
	q := wire.Query{Question: wire.Question{Type: dns.TypeNS, Class: dns.ClassINET}, Flags: wire.RD}
	e := u.newExchange(q.Pack(0), q.QuestionEnd(), time.Now().Add(probePatience), bounds{}, probe{u.pool, replies})
	e.probe = true
	if tcp {
		u.conns.send(&e, true)
	} else {
		u.sockets.send(&e, nil)
	}
}

// probe is the responder of a probe: any reply that can be read counts.
type probe struct {
	pool    *Pool
	replies chan<- struct{}
}

func (p probe) replied(reply []byte) bool {
	defer p.pool.net("the reply to a probe")
	if parse(reply, false) == nil {
		return false
	}
	select {
	case p.replies <- struct{}{}:
	default:
	}
	return true
}

func (p probe) failed(error, bool) {}
