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
	// maxIgnored is how many probes without EDNS are answered, and those with EDNS beside them not,
	// until the upstream is asked without EDNS, and withoutEDNS how long it is.
	maxIgnored  = 3
	withoutEDNS = 15 * time.Minute
)

// health tells whether an upstream answers. A query that goes unanswered proves
// nothing, since the name's own servers may be silent: it starts probes, and only probes
// count.
type health struct {
	fails   atomic.Int32 // probes in a row
	probing atomic.Bool
	heard   atomic.Int64 // when it last answered anything, a time.Duration
	edns    atomic.Int64 // when it last answered a query with EDNS, a time.Duration
	plain   atomic.Int64 // until when it is asked without EDNS, a time.Duration; 0: it is asked with EDNS
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

// answered notes an answer that came now to the query and took so long.
func (u *upstream) answered(query []byte, now, took time.Duration) {
	u.heard.Store(int64(now))
	if hasEDNS(query) {
		u.edns.Store(int64(now))
	}
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

// isPlain tells whether the upstream is asked without EDNS.
func (u *upstream) isPlain() bool {
	until := u.plain.Load()
	return until != 0 && int64(u.now()) < until
}

// askPlainly has the upstream asked without EDNS for a while, because it does not understand or
// does not get queries with EDNS.
func (u *upstream) askPlainly() { u.plain.Store(int64(u.now() + withoutEDNS)) }

// hasEDNS tells whether a packed query has an OPT record, its only additional one.
func hasEDNS(query []byte) bool { return query[11] != 0 }

// probe asks for the root's name servers again and again, with EDNS and without, until there is
// a reply to the former, or as many to the latter alone as show that queries with EDNS are lost. It
// does not wait for one probe before it sends the next.
func (u *upstream) probe(by bounds) {
	defer u.probing.Store(false)
	began := u.now()
	since, ignored := began, 0
	replies, plain := make(chan struct{}, 1), make(chan struct{}, 1)
	every := by.probe
	if every <= 0 {
		every = probeEvery
	}
	confirm := max(confirmWithin, confirmTrips*time.Duration(u.rtt.Load()))
	pace := min(confirm/time.Duration(by.maxFails), every)
	timer := time.NewTimer(pace)
	defer timer.Stop()
	for !u.gone() {
		u.probeOnce(by.forceTCP, replies, plain)
		timer.Reset(pace)
		select {
		case <-u.here.Done():
			return
		case <-replies:
		case <-timer.C:
		}
		last := since
		since = u.now()
		if u.heard.Load() >= int64(last) {
			u.fails.Store(0)
			if u.edns.Load() >= int64(began) || u.isPlain() {
				return
			}
			select {
			case <-plain:
				ignored++
			default:
			}
			if ignored == maxIgnored {
				u.askPlainly()
				u.sockets.end(errEDNS, func(e *exchange) bool { return !e.probe && hasEDNS(e.query) })
				return
			}
			continue
		}
		fails := int(u.fails.Add(1))
		// A query moves on after as many failed probes as its zone wants, so that it moves once.
		movesOn := func(e *exchange) bool { return !e.probe && e.by.maxFails == fails }
		u.sockets.end(errDown, movesOn)
		u.conns.end(errDown, movesOn)
		if fails >= by.maxFails {
			pace = every
		}
	}
}

// probeOnce asks on a socket of its own: where the upstream's address is a Service's,
// another socket may be tied to an endpoint that died. Both queries go to one endpoint.
func (u *upstream) probeOnce(tcp bool, replies, plain chan<- struct{}) {
	q := wire.Query{Question: wire.Question{Type: dns.TypeNS, Class: dns.ClassINET}, Flags: wire.RD}
	probeOf := func(query []byte, replies chan<- struct{}) *exchange {
		e := u.newExchange(query, q.QuestionEnd(), time.Now().Add(probePatience), bounds{}, probe{u.pool, replies})
		e.probe = true
		return &e
	}
	if e := probeOf(q.Pack(0), replies); tcp {
		u.conns.send(e, true)
	} else {
		u.sockets.probe(e, probeOf(q.PackWithoutEDNS(0), plain))
	}
}

// probe is the responder of a probe: any reply that can be read counts.
type probe struct {
	pool    *Pool
	replies chan<- struct{}
}

func (p probe) replied(reply []byte) bool {
	defer p.pool.net("the reply to a probe", nil)
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
