package listener

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/namegate/namegate/proxy/wire"
)

const (
	// tcpIdle is how long a connection may say nothing (RFC 7766 §6.2.3 wants a
	// few seconds and more where there is room).
	tcpIdle = 10 * time.Second
	// MessageTimeout is how long a query that has begun may take to arrive, and a
	// reply to be taken.
	MessageTimeout = 2 * time.Second
	// tcpQuery is the longest query; one question with its options needs less
	// than a tenth.
	tcpQuery = 4096
	// pipelined is how many queries of one connection are in flight at most; the
	// reader rests at that.
	pipelined = 32
)

// Client takes the messages of one connection.
type Client interface {
	// Message takes a message, which is the Client's from now on. False ends the
	// connection.
	Message(packet []byte) (goOn bool)
	// Disconnect is called once, when the connection is over or was refused.
	Disconnect()
}

// Conn is one client's connection. Its queries are answered as they get ready,
// not in their order (RFC 7766 §6.2.1.1).
type Conn struct {
	nc      net.Conn
	l       *listener
	client  Client
	slots   chan struct{}
	ended   chan struct{}
	writing sync.Mutex
	over    atomic.Bool // it reads no further query
}

// accept takes connections until the listener is closed, or for lastPackets behind its deadline: these came before.
func (l *listener) accept() {
	for ending := false; ; {
		nc, err := l.tcp.Accept()
		switch {
		case err == nil:
			l.welcome(nc)
		case errors.Is(err, os.ErrDeadlineExceeded) && !ending:
			ending = true
			_ = l.tcp.SetDeadline(time.Now().Add(lastPackets))
		case final(err):
			return
		default:
			time.Sleep(pause)
		}
	}
}

// welcome serves a connection if the bounds allow one more, else closes it.
func (l *listener) welcome(nc net.Conn) {
	served := false
	l.s.options.Protect("a connection", func() { served = l.serveConn(nc) })
	if !served {
		_ = nc.Close()
	}
}

// serveConn serves the connection; false: the bounds allow no more.
func (l *listener) serveConn(nc net.Conn) bool {
	l.s.options.Step("connection")
	c := &Conn{nc: nc, l: l, slots: make(chan struct{}, pipelined), ended: make(chan struct{})}
	var within bool
	c.client, within = l.handler.Connect(c)
	l.mu.Lock()
	welcome := !l.over && within
	if welcome {
		l.conns[c] = true
	}
	l.mu.Unlock()
	if !welcome {
		l.s.options.Counters.ShedConnections.Add(1)
		c.leave()
		return false
	}
	go c.serve()
	return true
}

// leave closes the connection, which counts no more.
func (c *Conn) leave() {
	_ = c.nc.Close()
	c.client.Disconnect()
}

// serve reads queries until the client is done, silent for too long or abusive;
// then the last replies go out.
func (c *Conn) serve() {
	defer close(c.ended)
	c.read()
	for range pipelined {
		c.slots <- struct{}{} // until no query is in flight
	}
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	c.leave()
}

// read starts the queries of the connection until there is no further one.
func (c *Conn) read() {
	c.l.s.options.Protect("a connection", func() {
		r := bufio.NewReaderSize(c.nc, 512)
		for c.next(r) {
		}
	})
}

// next reads one query and starts its answer; false ends the connection.
func (c *Conn) next(r *bufio.Reader) bool {
	if !c.waitUntil(tcpIdle) {
		return false
	}
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return false
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if n < wire.HeaderBytes || n > tcpQuery || !c.waitUntil(MessageTimeout) {
		c.l.s.options.Counters.Malformed.Add(1)
		return false
	}
	packet := make([]byte, n)
	if _, err := io.ReadFull(r, packet); err != nil {
		return false
	}
	return c.client.Message(packet)
}

// waitUntil sets how long the next read may take, unless the connection is to end.
func (c *Conn) waitUntil(d time.Duration) bool {
	return c.nc.SetReadDeadline(time.Now().Add(d)) == nil && !c.over.Load()
}

// finish makes the reader stop after the query that it is reading.
func (c *Conn) finish() {
	c.over.Store(true)
	_ = c.nc.SetReadDeadline(time.Now().Add(lastPackets))
}

// From returns the address of the client.
func (c *Conn) From() netip.AddrPort { return c.nc.RemoteAddr().(*net.TCPAddr).AddrPort() }

// Begin counts a query in flight, until Done. It waits where too many are.
func (c *Conn) Begin() { c.slots <- struct{}{} }

// Done ends a query that Begin began.
func (c *Conn) Done() { <-c.slots }

// Send sends one message; a client that does not take it loses its connection.
func (c *Conn) Send(packet []byte) bool {
	c.l.s.options.Step("reply")
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.nc.SetWriteDeadline(time.Now().Add(MessageTimeout))
	framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(packet)), uint16(len(packet))) // RFC 1035 §4.2.2
	if _, err := c.nc.Write(append(framed, packet...)); err != nil {
		c.l.s.options.Counters.RepliesLost.Add(1)
		_ = c.nc.Close()
		return false
	}
	return true
}
