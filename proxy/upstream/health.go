package upstream

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

// probeEvery is how often an upstream that is down is asked whether it answers
// again, where the zone does not say.
const probeEvery = 250 * time.Millisecond

const (
	// doubtAfter is how long an upstream may say nothing to anybody before it is
	// probed: an endpoint that died silently is known to be down before the first
	// query that it swallowed has waited for its whole try.
	doubtAfter = 150 * time.Millisecond
	// confirmWithin is how long the probes take, as many as must fail, until the
	// upstream counts as down; for one that is far away confirmTrips times as long
	// as an answer takes.
	confirmWithin = 150 * time.Millisecond
	confirmTrips  = 3
	// probePatience is how long a probe's answer still counts.
	probePatience = time.Second
)

// errDown ends the queries that are under way at an upstream that is found down.
var errDown = errors.New("it stopped answering")

// health tells whether an upstream answers. A query that goes unanswered proves
// nothing, since the name's own servers may be what is silent: it starts probes,
// and only probes count.
type health struct {
	fails   atomic.Int32 // probes in a row
	probing atomic.Bool
	heard   atomic.Int64 // the moment of its last answer to anything, a time.Duration
	near    atomic.Int64 // about the least time that an answer takes, a time.Duration
}

// failed counts a try without a reply, and starts probes if none are under way.
// Without a bound nothing is ever down, and nothing probed.
func (u *upstream) failed(by attempt) {
	u.stats.Failures.Add(1)
	u.suspect(by)
}

func (u *upstream) suspect(by attempt) {
	if by.maxFails > 0 && u.probing.CompareAndSwap(false, true) {
		go u.probe(by)
	}
}

// answered notes an answer that came at the moment now and took so long.
func (u *upstream) answered(now, took time.Duration) {
	u.heard.Store(int64(now))
	if u.fails.Load() != 0 {
		u.fails.Store(0)
	}
	// It follows a lesser value at once, and a greater one slowly: what recursion
	// adds is not the way's.
	near := u.near.Load()
	switch {
	case near == 0 || int64(took) < near:
		u.near.Store(int64(took))
	case int64(took) > near+64:
		u.near.Store(near + (int64(took)-near)/64)
	}
}

func (u *upstream) down(most int) bool { return most > 0 && int(u.fails.Load()) >= most }

// probe asks for the root's name servers again and again until there is any reply.
// It does not wait for the one probe to send the next.
func (u *upstream) probe(by attempt) {
	defer u.probing.Store(false)
	began := u.now()
	replies := make(chan struct{}, 1)
	every := by.probe
	if every <= 0 {
		every = probeEvery
	}
	confirm := max(confirmWithin, confirmTrips*time.Duration(u.near.Load()))
	pace := min(confirm/time.Duration(by.maxFails), every)
	timer := time.NewTimer(pace)
	defer timer.Stop()
	for !u.gone() {
		go u.probeOnce(by.forceTCP, replies)
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
		u.lines.moveOn(fails)
		u.streams.moveOn(fails)
		if fails >= by.maxFails {
			pace = every
		}
	}
}

// probeOnce asks on a socket of its own: where the upstream's address is a
// Service's, others may be tied to an endpoint that died.
func (u *upstream) probeOnce(tcp bool, replies chan<- struct{}) {
	a := wire.Query{Question: wire.Question{Type: dns.TypeNS, Class: dns.ClassINET}, Flags: wire.RD}
	p := u.newPending(a.Pack(0), a.QuestionEnd(), time.Now().Add(probePatience), attempt{})
	p.probe = true
	if tcp {
		u.streams.send(p, true)
	} else {
		u.lines.send(p, true)
	}
	if _, _, err := p.wait(); err == nil {
		select {
		case replies <- struct{}{}:
		default:
		}
	}
}
