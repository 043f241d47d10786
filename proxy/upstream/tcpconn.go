package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/namegate/namegate/proxy/wire"
)

const (
	// connMessage is how long a message that has begun may take to arrive, and queries to
	// be taken.
	connMessage = 2 * time.Second
	// connDial is how long a connection may take to be made.
	connDial = 3 * time.Second
	// connLate is the maximum number of late answers, to queries that gave up, on a
	// connection.
	connLate = 64
)

var errMalformed = errors.New("the reply over TCP does not answer the query")

// tcpConn is one TCP connection and the queries that are under way on it, also while it
// is being made. The lock of its pool guards all of it.
type tcpConn struct {
	pool     *tcpPool
	ctx      context.Context // of making the connection
	cancel   context.CancelFunc
	work     sync.Cond // out has something, or it is closed
	conn     net.Conn  // nil until it is made
	waiting  map[uint16]*exchange
	late     map[uint16]bool // ids of queries that gave up
	out      []byte          // queries that are not written yet
	heard    time.Duration   // the last answer
	idle     time.Duration   // since when nothing is under way
	taken    int             // queries so far
	draining bool            // takes no query any more, and closes with the last
	closed   bool
}

func newConn(p *tcpPool) *tcpConn {
	c := &tcpConn{pool: p, waiting: map[uint16]*exchange{}, late: map[uint16]bool{}, heard: -1}
	c.work.L = &p.mu
	c.ctx, c.cancel = context.WithTimeout(p.u.here, connDial)
	return c
}

// run makes the connection and writes queries until it is closed.
func (c *tcpConn) run() {
	defer c.pool.forget(c)
	defer c.cancel()
	conn, err := c.pool.u.pool.dialer().DialContext(c.ctx, "tcp", c.pool.u.addr.String())
	if err != nil {
		c.fail(err, false)
		return
	}
	defer conn.Close()
	c.pool.mu.Lock()
	c.conn = conn
	c.pool.mu.Unlock()
	read := make(chan struct{})
	go func() { defer close(read); c.read(conn) }()
	for queries := c.next(); queries != nil; queries = c.next() {
		_ = conn.SetWriteDeadline(time.Now().Add(connMessage))
		if _, err := conn.Write(queries); err != nil {
			c.fail(err, true)
		}
	}
	_ = conn.Close()
	<-read
}

// next waits for queries to write; nil when the connection is closed.
func (c *tcpConn) next() []byte {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	for len(c.out) == 0 && !c.closed {
		c.work.Wait()
	}
	if c.closed {
		return nil
	}
	queries := c.out
	c.out = nil
	return queries
}

// read hands the answers out.
func (c *tcpConn) read(conn net.Conn) {
	r := bufio.NewReaderSize(conn, PacketBytes)
	var body bytes.Buffer
	for {
		if err := readMessage(conn, r, &body); err != nil {
			c.fail(err, !errors.Is(err, errMalformed))
			return
		}
		if !c.take(body.Bytes()) {
			c.fail(errMalformed, false)
			return
		}
		if body.Cap() > 4*PacketBytes {
			body = bytes.Buffer{}
		}
	}
}

// readMessage reads one message. A length alone reserves no memory.
func readMessage(conn net.Conn, r *bufio.Reader, body *bytes.Buffer) error {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if n < wire.HeaderBytes {
		return errMalformed
	}
	if r.Buffered() < n {
		_ = conn.SetReadDeadline(time.Now().Add(connMessage))
		defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	}
	body.Reset()
	if _, err := io.CopyN(body, r, int64(n)); err != nil {
		return err
	}
	return nil
}

// take gives a message to its query; false if no query has its id.
func (c *tcpConn) take(reply []byte) bool {
	id, u := binary.BigEndian.Uint16(reply), c.pool.u
	now := u.now()
	c.pool.mu.Lock()
	e := c.waiting[id]
	late := c.late[id]
	if e == nil {
		delete(c.late, id)
	} else {
		c.remove(id, now)
		c.heard = now
		c.closeIfDone()
	}
	c.pool.mu.Unlock()
	switch {
	case e == nil && late:
		return true
	case e != nil && wire.Answers(e.query, reply, e.end):
		u.answered(e.query, now, now-e.began)
		if e.to.replied(reply) {
			return true
		}
	}
	u.stats.WrongReplies.Add(1)
	if e == nil {
		return false
	}
	e.to.failed(errMalformed, false)
	return true
}

// remove takes a query out of the table; the caller holds the lock.
func (c *tcpConn) remove(id uint16, now time.Duration) {
	delete(c.waiting, id)
	if len(c.waiting) == 0 {
		c.idle = now
		c.pool.u.wake(now + connIdle)
	}
}

// closeIfDone closes the connection if nothing is under way on it and nothing will be;
// the caller holds the lock.
func (c *tcpConn) closeIfDone() {
	if !c.draining || len(c.waiting) > 0 || c.closed {
		return
	}
	c.closed = true
	c.cancel()
	if c.conn != nil {
		_ = c.conn.SetDeadline(time.Unix(1, 0)) // run closes it
	}
	c.work.Signal()
}

// fail ends the connection with all its queries. Queries that were lost together with
// others may be retried: a server may close it after any answer.
func (c *tcpConn) fail(err error, lost bool) {
	c.pool.mu.Lock()
	c.draining = true
	lost = lost && c.taken > 1
	ended := c.waiting
	c.waiting = map[uint16]*exchange{}
	c.closeIfDone()
	c.pool.mu.Unlock()
	for _, e := range ended {
		e.to.failed(err, lost)
	}
}
