package proxy

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/limit"
	"github.com/namegate/namegate/proxy/wire"
)

const (
	// tcpIdle is how long a connection may say nothing (RFC 7766 §6.2.3 wants a
	// few seconds and more where there is room).
	tcpIdle = 10 * time.Second
	// tcpMessage is how long a query that has begun may take to arrive, and a
	// reply to be taken.
	tcpMessage = 2 * time.Second
	// tcpQuery is the longest query; one question with its options needs less
	// than a tenth.
	tcpQuery = 4096
	// pipelined is how many queries of one connection are in flight at most; the
	// reader rests at that.
	pipelined = 32
)

// conn is one client's connection. Its queries are answered as they get ready,
// not in their order (RFC 7766 §6.2.1.1).
type conn struct {
	net.Conn
	l       *listener
	who     identity
	client  *limit.Client
	slots   chan struct{}
	ended   chan struct{}
	writing sync.Mutex
	once    sync.Once
	over    chan struct{}
}

func (l *listener) accept() {
	for {
		nc, err := l.tcp.Accept()
		if err != nil {
			if final(err) {
				return
			}
			time.Sleep(pause)
			continue
		}
		l.welcome(nc)
	}
}

// welcome serves a connection if the bounds allow one more, else closes it.
func (l *listener) welcome(nc net.Conn) {
	served := false
	l.s.protect("a connection", func() { served = l.serveConn(nc) })
	if !served {
		_ = nc.Close()
	}
}

// serveConn serves the connection; false: the bounds allow no more.
func (l *listener) serveConn(nc net.Conn) bool {
	s := l.s
	s.step("connection")
	who := s.identify(nc.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(), l.addr.Addr())
	// A source that is not identified yet has a client of its own, since it completed a
	// handshake: the node's starting pods do not share the limits of unknown sources.
	connected := who
	connected.known = who.known || who.unidentified
	c := &conn{Conn: nc, l: l, who: who, client: s.client(connected),
		slots: make(chan struct{}, pipelined), ended: make(chan struct{}), over: make(chan struct{})}
	within := s.clients.Connect(c.client, &s.setup.Load().config.Limits, who.node)
	l.mu.Lock()
	welcome := !l.over && within
	if welcome {
		l.conns[c] = true
	}
	l.mu.Unlock()
	if !welcome {
		s.stats.ShedConnections.Add(1)
		c.leave()
		return false
	}
	go c.serve()
	return true
}

// leave closes the connection, which counts no more.
func (c *conn) leave() {
	_ = c.Close()
	c.l.s.clients.Disconnect(c.client)
}

// serve reads queries until the client is done, silent for too long or abusive;
// then the last replies go out.
func (c *conn) serve() {
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
func (c *conn) read() {
	c.l.s.protect("a connection", func() {
		r := bufio.NewReaderSize(c, 512)
		for c.next(r) {
		}
	})
}

// next reads one query and starts its answer; false ends the connection.
func (c *conn) next(r *bufio.Reader) bool {
	if !c.waitUntil(tcpIdle) {
		return false
	}
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return false
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if n < wire.HeaderBytes || n > tcpQuery || !c.waitUntil(tcpMessage) {
		c.l.s.stats.Malformed.Add(1)
		return false
	}
	packet := make([]byte, n)
	if _, err := io.ReadFull(r, packet); err != nil {
		return false
	}
	if !wire.IsQuery(packet) {
		c.l.s.stats.Malformed.Add(1)
		return false
	}
	return c.take(packet)
}

// waitUntil sets how long the next read may take, unless the connection is to end.
func (c *conn) waitUntil(d time.Duration) bool {
	if c.SetReadDeadline(time.Now().Add(d)) != nil {
		return false
	}
	select {
	case <-c.over:
		return false
	default:
		return true
	}
}

// finish makes the reader stop after the query that it is reading.
func (c *conn) finish() {
	c.once.Do(func() { close(c.over) })
	_ = c.SetReadDeadline(time.Now().Add(lastPackets))
}

// take starts a query; false ends the connection.
func (c *conn) take(packet []byte) (goOn bool) {
	if !c.l.s.protect("a query", func() { goOn = c.query(packet) }) {
		return c.write(wire.ErrorReply(packet, dns.RcodeServerFailure))
	}
	return goOn
}

// query identifies the client and starts the query if it is admitted.
func (c *conn) query(packet []byte) (goOn bool) {
	s := c.l.s
	s.step("packet")
	// The pod that had the address when the connection began may be gone.
	who := s.identify(c.who.addr, c.l.addr.Addr())
	s.step("identified")
	if !who.unidentified {
		switch s.paced(who, s.elapsed()) {
		case drop:
			return true
		case overPace:
			return c.write(wire.ErrorReply(packet, dns.RcodeServerFailure))
		}
	}
	if !who.known && !who.unidentified {
		s.stats.Strangers.Add(1)
		return c.write(wire.ErrorReply(packet, dns.RcodeRefused))
	}
	c.slots <- struct{}{}
	handedOn := false
	defer func() {
		if !handedOn {
			<-c.slots
		}
	}()
	if who.unidentified {
		handedOn = s.park(who, &parkedQuery{local: c.l.addr.Addr(), packet: packet, from: fromTCP, to: c})
		if !handedOn && s.shed(c.client, s.elapsed()) == overPace {
			return c.write(wire.ErrorReply(packet, dns.RcodeServerFailure))
		}
		return true
	}
	slot, ok := s.admit(who)
	if !ok {
		return c.write(wire.ErrorReply(packet, dns.RcodeServerFailure))
	}
	q := s.newQuery(packet, fromTCP, &who, c, s.now())
	q.slot, handedOn = slot, true
	s.workers.do(q.run)
	return true
}

// reply implements replier.
func (c *conn) reply(packet []byte, _ bool) { c.write(packet) }

// done implements replier.
func (c *conn) done(*query) { <-c.slots }

// write sends one message; a client that does not take it loses its connection.
func (c *conn) write(packet []byte) bool {
	c.l.s.step("reply")
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(tcpMessage))
	framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(packet)), uint16(len(packet))) // RFC 1035 §4.2.2
	if _, err := c.Write(append(framed, packet...)); err != nil {
		c.l.s.stats.RepliesLost.Add(1)
		_ = c.Close()
		return false
	}
	return true
}
