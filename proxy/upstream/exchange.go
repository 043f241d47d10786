package upstream

import (
	"sync"
	"time"

	"github.com/miekg/dns"
)

// pending is one query that is under way, over UDP or TCP. Whoever takes it out
// of the table of its line or stream ends it, once. Moments are since the
// upstream was made.
type pending struct {
	query []byte // on the wire, with the id that it goes by
	end   int    // where its question ends
	probe bool   // it asks whether the upstream answers at all
	// zone is what the attempt says of its zone: how to probe.
	zone attempt

	began, doubt, until time.Duration
	wrong               int       // replies that bear its id and do not answer it
	first               *original // of one that is sent a second time

	to   taker         // who is told, instead of done
	done chan struct{} // has one when msg or err is set
	msg  *dns.Msg
	err  error
	lost bool // err is of a connection that ended under it
}

// taker is told how a query ended. It must not block; it may be called with locks
// held, and must not come back to the upstream.
type taker interface {
	// take gets the reply, which answers the query and is lent, or an error.
	take(packet []byte, err error)
}

// original is where the query stands that was sent a second time. Ids are used
// once on a line, so that it cannot be taken for a later one.
type original struct {
	l  *line
	id uint16
}

var pendings = sync.Pool{New: func() any { return &pending{done: make(chan struct{}, 1)} }}

// newPending returns a query that nobody has sent. It goes back with recycle.
func newPending(query []byte, end int) *pending {
	p := pendings.Get().(*pending)
	p.query, p.end = query, end
	return p
}

func (p *pending) recycle() {
	*p = pending{done: p.done}
	pendings.Put(p)
}

// wait returns how the query ended, and recycles it.
func (p *pending) wait() (m *dns.Msg, lost bool, err error) {
	<-p.done
	m, lost, err = p.msg, p.lost, p.err
	p.recycle()
	return m, lost, err
}

// answer ends the query with its answer. The caller holds no lock: where the query
// was sent a second time, the answer is for the first, on another line.
func (p *pending) answer(m *dns.Msg, packet []byte) {
	if at := p.first; at != nil {
		p.recycle()
		if p = at.l.claim(at.id); p == nil {
			return // it has its answer, or its time is over
		}
	}
	if to := p.to; to != nil {
		p.recycle()
		to.take(packet, nil)
		return
	}
	p.msg = m
	p.done <- struct{}{}
}

// fail ends the query without one.
func (p *pending) fail(err error) {
	if p.first != nil {
		p.recycle() // the first goes on
		return
	}
	if to := p.to; to != nil {
		p.recycle()
		to.take(nil, err)
		return
	}
	p.err = err
	p.done <- struct{}{}
}

// down tells whether the query moves on after so many probes in a row went
// unanswered: as many as its zone wants, so that each moves once.
func (p *pending) down(fails int) bool {
	return !p.probe && p.first == nil && p.zone.maxFails > 0 && p.zone.maxFails == fails
}
