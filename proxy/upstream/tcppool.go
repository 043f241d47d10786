package upstream

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	// maxConns bounds the TCP connections towards one upstream that queries share. While
	// there are fewer, a query gets one on which none is under way: not every server
	// answers out of order.
	maxConns = 8
	// connsAlone bounds all of them, with the connections for a second send: some servers close a connection after the first answer.
	connsAlone = 128
	// connQueries is how many queries are under way on one of them.
	connQueries = 256
	// connIdle is how long one is kept without a query (RFC 7766 §6.2.3: a few seconds).
	connIdle = 5 * time.Second
)

var errConns = errors.New("too many of its connections wait for answers")

// tcpPool is the TCP connections of one upstream, with pipelining and answers in any
// order (RFC 7766 §6.2.1).
type tcpPool struct {
	u       *upstream
	mu      sync.Mutex
	conns   []*tcpConn
	closing bool
}

// send assigns a connection to a query; alone: a new one. Every failure is reported to
// its responder.
func (p *tcpPool) send(e *exchange, alone bool) {
	p.mu.Lock()
	if p.closing {
		e.until = min(e.until, p.u.now()+lastAnswer)
	}
	c := p.conn(alone)
	if c != nil {
		c.add(e)
		c.draining = c.draining || alone || p.closing
	}
	at := min(e.retransmit, e.until)
	p.mu.Unlock()
	if c == nil {
		e.to.failed(errConns, false)
		return
	}
	p.u.wake(at)
}

// conn returns the connection with the most room, or a new one while a shared one would
// make the query wait, nil if there are too many; the caller holds the lock.
func (p *tcpPool) conn(alone bool) *tcpConn {
	if !alone {
		var best *tcpConn
		open := 0
		for _, c := range p.conns {
			if c.draining {
				continue
			}
			open++
			if best == nil || len(c.waiting) < len(best.waiting) {
				best = c
			}
		}
		switch {
		case best != nil && (len(best.waiting) == 0 || open >= maxConns && len(best.waiting) < connQueries):
			return best
		case open >= maxConns:
			return nil
		}
	}
	if len(p.conns) >= connsAlone {
		return nil
	}
	c := newConn(p)
	p.conns = append(p.conns, c)
	go c.run()
	return c
}

// add queues a query; the caller holds the lock.
func (c *tcpConn) add(e *exchange) {
	c.taken++
	id := dns.Id()
	for c.waiting[id] != nil || c.late[id] {
		id = dns.Id()
	}
	binary.BigEndian.PutUint16(e.query, id)
	c.waiting[id] = e
	c.out = binary.BigEndian.AppendUint16(c.out, uint16(len(e.query)))
	c.out = append(c.out, e.query...)
	c.work.Signal()
}

// sweep ends the queries whose time is over, and idle or silent connections. It returns
// when there is more to do.
func (p *tcpPool) sweep(now time.Duration) (next time.Duration) {
	next = never
	var failures []failure
	p.mu.Lock()
	for _, c := range p.conns {
		for id, e := range c.waiting {
			if now >= e.retransmit {
				e.retransmit = never
				if p.u.heard.Load() < int64(e.began) {
					p.u.suspect(e.by)
				}
			}
			if now < e.until {
				next = min(next, e.retransmit, e.until)
				continue
			}
			c.remove(id, now)
			c.late[id] = true
			if c.heard < e.began || len(c.late) > connLate {
				c.draining = true
			}
			failures = append(failures, failure{e, os.ErrDeadlineExceeded})
		}
		switch {
		case len(c.waiting) > 0 || c.closed:
		case now >= c.idle+connIdle:
			c.draining = true
		default:
			next = min(next, c.idle+connIdle)
		}
		c.closeIfDone()
	}
	p.mu.Unlock()
	tell(failures)
	return next
}

// end ends some of the queries.
func (p *tcpPool) end(err error, which func(*exchange) bool) {
	var failures []failure
	p.mu.Lock()
	for _, c := range p.conns {
		for id, e := range c.waiting {
			if which(e) {
				c.remove(id, p.u.now())
				c.draining = true
				failures = append(failures, failure{e, err})
			}
		}
		c.closeIfDone()
	}
	p.mu.Unlock()
	tell(failures)
}

// close lets no query wait for longer than until last, and the connections close with
// them.
func (p *tcpPool) close(last time.Duration) {
	p.mu.Lock()
	p.closing = true
	for _, c := range p.conns {
		for _, e := range c.waiting {
			e.until = min(e.until, last)
		}
		c.draining = true
		c.closeIfDone()
	}
	p.mu.Unlock()
	p.u.wake(last)
}

// forget removes a connection that is closed.
func (p *tcpPool) forget(gone *tcpConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = slices.DeleteFunc(p.conns, func(c *tcpConn) bool { return c == gone })
}

// count returns how many connections there are.
func (p *tcpPool) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}
