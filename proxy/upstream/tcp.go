package upstream

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/wire"
)

const (
	// maxConns bounds the TCP connections to one upstream: as many as all queries in flight by
	// default, whose bound has a share for each pod (limits of the Corefile).
	maxConns = 4096
	// maxIdle bounds the connections that wait for a query, connIdle for how long they do (RFC 7766
	// §6.2.3: a few seconds).
	maxIdle  = 8
	connIdle = 5 * time.Second
)

var (
	errConns     = errors.New("too many of its connections wait for answers")
	errMalformed = errors.New("the reply over TCP does not answer the query")
)

// tcpPool is the TCP connections of one upstream. A connection has one query at a time, since not
// every server answers out of order, and waits for a while for the next one.
type tcpPool struct {
	u       *upstream
	mu      sync.Mutex
	waiting map[*exchange]context.CancelCauseFunc // the queries under way
	idle    []*tcpConn                            // the last used last
	open    int                                   // connections, those that are being made included
	closing bool
}

// tcpConn is one connection.
type tcpConn struct {
	mark  uint32        // of its packets
	next  chan tcpQuery // its queries; closed: it takes no more
	since time.Duration // that it is idle
}

// tcpQuery is a query under way, until ctx ends.
type tcpQuery struct {
	*exchange
	ctx context.Context
}

// send gives a query to an idle connection, or to a new one; fresh: not to an idle one. Every failure
// is reported to its responder.
func (p *tcpPool) send(e *exchange, fresh bool) {
	p.mu.Lock()
	if p.closing {
		e.until = min(e.until, p.u.now()+lastAnswer)
	}
	var c *tcpConn
	if n := len(p.idle) - 1; n >= 0 && !fresh {
		c, p.idle = p.idle[n], p.idle[:n]
	} else if p.open < maxConns {
		c = &tcpConn{next: make(chan tcpQuery, 1)}
		p.open++
		go p.run(c)
	} else {
		p.mu.Unlock()
		e.to.failed(errConns, false)
		return
	}
	ctx, end := context.WithCancelCause(context.Background())
	p.waiting[e] = end
	at := min(e.retransmit, e.until)
	p.mu.Unlock()
	c.next <- tcpQuery{e, ctx}
	p.u.wake(at)
}

// run makes the connection, and asks its queries until it takes no more.
func (p *tcpPool) run(c *tcpConn) {
	defer p.forget()
	q := <-c.next
	c.mark = p.u.pool.mark.Load()
	conn, err := Dialer(c.mark).DialContext(q.ctx, "tcp", p.u.addr.String())
	if err != nil {
		p.finish(q, nil, err, false)
		return
	}
	defer conn.Close()
	for used, open := false, true; open; used = true {
		reply, err := q.ask(conn)
		rests := err == nil && p.rest(c) // first: the next query may come with the reply
		p.finish(q, reply, err, used)
		if !rests {
			return
		}
		q, open = <-c.next
	}
}

// ask sends the query and returns the message that answers it.
func (q tcpQuery) ask(conn net.Conn) ([]byte, error) {
	stop := context.AfterFunc(q.ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	reply, err := q.exchange.over(conn)
	if !stop() && err == nil {
		return nil, os.ErrDeadlineExceeded // the connection has a deadline that is over
	}
	return reply, err
}

// over is ask without an end. A length alone reserves no memory.
func (e *exchange) over(conn net.Conn) ([]byte, error) {
	binary.BigEndian.PutUint16(e.query, dns.Id())
	framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(e.query)), uint16(len(e.query)))
	if _, err := conn.Write(append(framed, e.query...)); err != nil {
		return nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint16(length[:]))
	if n < wire.HeaderBytes {
		return nil, errMalformed
	}
	var body bytes.Buffer
	if _, err := io.CopyN(&body, conn, n); err != nil {
		return nil, err
	}
	if !wire.Answers(e.query, body.Bytes(), e.end) {
		return nil, errMalformed
	}
	return body.Bytes(), nil
}

// finish tells the query's responder its end. A query that was lost on a connection that was used
// before may be asked again: a server may close it after any answer.
func (p *tcpPool) finish(q tcpQuery, reply []byte, err error, used bool) {
	e, u := q.exchange, p.u
	p.mu.Lock()
	end := p.waiting[e]
	delete(p.waiting, e)
	p.mu.Unlock()
	if cause := context.Cause(q.ctx); err != nil && cause != nil {
		err, used = cause, false
	}
	end(nil)
	if err == nil {
		now := u.now()
		u.answered(e.query, now, now-e.began)
		if e.to.replied(reply) {
			return
		}
		err = errMalformed
	}
	if errors.Is(err, errMalformed) {
		u.stats.WrongReplies.Add(1)
		used = false
	}
	e.to.failed(err, used)
}

// rest has the connection wait for the next query, and tells whether it does.
func (p *tcpPool) rest(c *tcpConn) bool {
	now := p.u.now()
	p.mu.Lock()
	rests := !p.closing && len(p.idle) < maxIdle && c.mark == p.u.pool.mark.Load()
	if rests {
		c.since = now
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if rests {
		p.u.wake(now + connIdle)
	}
	return rests
}

// sweep ends the queries whose time is over, suspects an upstream that is silent, and closes the
// connections that were idle for long. It returns when there is more to do.
func (p *tcpPool) sweep(now time.Duration) (next time.Duration) {
	next = never
	p.mu.Lock()
	defer p.mu.Unlock()
	for e, end := range p.waiting {
		if now >= e.retransmit {
			e.retransmit = never
			if p.u.heard.Load() < int64(e.began) {
				p.u.suspect(e.by)
			}
		}
		if now >= e.until {
			end(os.ErrDeadlineExceeded)
			continue
		}
		next = min(next, e.retransmit, e.until)
	}
	for len(p.idle) > 0 && now >= p.idle[0].since+connIdle {
		close(p.idle[0].next)
		p.idle = p.idle[1:]
	}
	if len(p.idle) > 0 {
		next = min(next, p.idle[0].since+connIdle)
	}
	return next
}

// end ends some of the queries.
func (p *tcpPool) end(err error, which func(*exchange) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e, end := range p.waiting {
		if which(e) {
			end(err)
		}
	}
}

// drain closes the idle connections; the caller holds the lock.
func (p *tcpPool) drain() {
	for _, c := range p.idle {
		close(c.next)
	}
	p.idle = nil
}

// close lets no query wait for longer than until last, and no connection be idle.
func (p *tcpPool) close(last time.Duration) {
	p.mu.Lock()
	p.closing = true
	for e := range p.waiting {
		e.until = min(e.until, last)
	}
	p.drain()
	p.mu.Unlock()
	p.u.wake(last)
}

// forget counts a connection that is closed no more.
func (p *tcpPool) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
}
