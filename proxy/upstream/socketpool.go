package upstream

import (
	"errors"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// socketQueries is how many queries are under way on one socket before another is
	// opened: so many replies of the usual size fit into the buffer that the kernel gives
	// for receiveBuffer (twice net.core.rmem_max, of which a small reply takes 768 to
	// 2,304 bytes).
	socketQueries = 128
	receiveBuffer = 1 << 20
	// maxSockets bounds the sockets of one upstream. Beyond it they carry more each.
	maxSockets = 64
)

var errSockets = errors.New("too many of its sockets wait for answers")

// socketPool is the UDP sockets of one upstream: one takes queries until it is full, old,
// or known to hear nothing, then another does. A socket that takes no more closes with
// its last query.
type socketPool struct {
	u       *upstream
	mu      sync.Mutex
	sockets []*udpSocket // oldest first, draining ones included
	closing bool
}

// send assigns a socket to a query and sends it, in the batch if there is one. Every
// failure is reported to its responder.
func (p *socketPool) send(e *exchange, batch *Batch) {
	query := e.query // e is another query, or none, when it has ended
	if batch != nil {
		batch.Reserve() // with no lock held
	}
	p.mu.Lock()
	if p.closing {
		e.until = min(e.until, p.u.now()+lastAnswer)
	}
	s, err := p.socket(false)
	if err == nil {
		s.add(e, 0, query)
		if batch != nil {
			batch.Add(s, query)
		}
	}
	at := min(e.retransmit, e.until)
	p.mu.Unlock()
	if err != nil {
		e.to.failed(err, false)
		return
	}
	if batch == nil {
		s.write(query)
	}
	p.u.wake(at)
}

// probe sends probes on a socket of their own, unless there are too many sockets.
func (p *socketPool) probe(es ...*exchange) {
	p.mu.Lock()
	s, err := p.socket(true)
	if err != nil {
		p.mu.Unlock()
		return
	}
	queries, until := make([][]byte, len(es)), never
	for i, e := range es {
		queries[i], until = e.query, min(until, e.until)
		s.add(e, 0, e.query)
	}
	s.draining = true
	p.mu.Unlock()
	for _, query := range queries {
		s.write(query)
	}
	p.u.wake(until)
}

// socket returns the oldest socket with room, so that few are in use, or opens one. At
// the bound it returns the emptiest. The caller holds the lock.
func (p *socketPool) socket(fresh bool) (least *udpSocket, err error) {
	if !fresh {
		for _, s := range p.sockets {
			switch {
			case s.draining:
			case len(s.waiting) < socketQueries:
				return s, nil
			case least == nil || len(s.waiting) < len(least.waiting):
				least = s
			}
		}
	}
	p.prune()
	switch {
	case len(p.sockets) < maxSockets:
		return p.open()
	case least == nil:
		return nil, errSockets
	}
	return least, nil
}

// prune forgets the closed sockets.
func (p *socketPool) prune() {
	p.sockets = slices.DeleteFunc(p.sockets, func(s *udpSocket) bool { return s.closed })
}

// remove removes an exchange from the tables. The caller ends the exchange, and holds the
// lock.
func (p *socketPool) remove(e *exchange) {
	for _, sent := range e.sends {
		if sent.socket != nil {
			delete(sent.socket.waiting, sent.id)
			sent.socket.closeIfDone()
		}
	}
}

// unread is for an exchange that was removed for a reply that cannot be read: it waits for
// another one, unless there were too many or its sockets have closed.
func (p *socketPool) unread(e *exchange) {
	p.u.stats.WrongReplies.Add(1)
	p.mu.Lock()
	open := slices.DeleteFunc(e.sends[:], func(sent send) bool { return sent.socket == nil || sent.socket.closed })
	e.wrong++
	waits := len(open) > 0 && e.wrong < maxWrong
	if waits {
		for _, sent := range open {
			sent.socket.waiting[sent.id] = e
		}
		e.query = open[0].query
	}
	at := e.until
	p.mu.Unlock()
	if !waits {
		e.to.failed(errManyWrong, false)
		return
	}
	p.u.wake(at)
}

// each calls f with every exchange; the caller holds the lock.
func (p *socketPool) each(f func(s *udpSocket, e *exchange)) {
	for _, s := range p.sockets {
		for _, e := range s.waiting {
			if e.sends[0].socket == s {
				f(s, e)
			}
		}
	}
}

// sweep ends the queries whose time is over, retransmits the queries whose socket is
// silent, and closes old sockets. It returns when there is more to do.
func (p *socketPool) sweep(now time.Duration) (next time.Duration) {
	next = never
	silentSince := never
	var failures []failure
	var unheard []*exchange
	p.mu.Lock()
	p.each(func(s *udpSocket, e *exchange) {
		silent := s.heard < e.began
		switch {
		case now >= e.until:
			failures = append(failures, failure{e, os.ErrDeadlineExceeded})
			if silent {
				silentSince = min(silentSince, e.began)
				s.draining = true
			}
			return
		case now >= e.retransmit:
			e.retransmit = e.until
			if silent {
				unheard = append(unheard, e)
			}
		}
		next = min(next, e.retransmit, e.until)
	})
	for _, f := range failures {
		p.remove(f.e)
	}
	var again []send
	for _, e := range unheard {
		again = p.retransmit(e, again)
	}
	for _, s := range p.sockets {
		// If the upstream's address is a Service's, sockets that received nothing since
		// an unanswered query may all be tied to the endpoint that died.
		mute := silentSince != never && s.opened < silentSince && s.heard < silentSince
		if mute || now >= s.opened+socketAge {
			s.draining = true
		}
		if s.closeIfDone(); !s.draining {
			next = min(next, s.opened+socketAge)
		}
	}
	p.prune()
	p.mu.Unlock()
	for _, sent := range again {
		sent.socket.write(sent.query)
	}
	tell(failures)
	return next
}

// retransmit sends a query again on another socket: its own may be tied to a dead
// endpoint of a Service. The caller holds the lock, and writes the queries added to
// again.
func (p *socketPool) retransmit(e *exchange, again []send) []send {
	if p.u.heard.Load() < int64(e.began) {
		p.u.suspect(e.by)
	}
	e.sends[0].socket.draining = true
	if len(p.sockets) > maxSockets/2 {
		return again // its load is what ails it
	}
	s, err := p.socket(false)
	if err != nil {
		return again
	}
	p.u.stats.Queries.Add(1)
	s.add(e, 1, slices.Clone(e.query))
	return append(again, e.sends[1])
}

// end ends some of the queries.
func (p *socketPool) end(err error, which func(*exchange) bool) {
	var failures []failure
	p.mu.Lock()
	p.each(func(_ *udpSocket, e *exchange) {
		if which(e) {
			failures = append(failures, failure{e, err})
		}
	})
	for _, f := range failures {
		p.remove(f.e)
	}
	p.mu.Unlock()
	tell(failures)
}

// close lets no query wait for longer than until last, and the sockets close with them.
func (p *socketPool) close(last time.Duration) {
	p.mu.Lock()
	p.closing = true
	p.each(func(_ *udpSocket, e *exchange) { e.until = min(e.until, last) })
	for _, s := range p.sockets {
		s.draining = true
		s.closeIfDone()
	}
	p.mu.Unlock()
	p.u.wake(last)
}
