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
	// pipelined is how many queries of one connection are under way at most; the
	// reader rests at that.
	pipelined = 32
)

// conn is one client's connection. Its queries are answered as they get ready,
// not in their order (RFC 7766 §6.2.1.1).
type conn struct {
	net.Conn
	l      *listener
	who    asker
	client *limit.Client
	slots  chan struct{}
	ended  chan struct{}
	write  sync.Mutex
	once   sync.Once
	over   chan struct{}
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
	s := l.s
	served := false
	defer func() {
		if r := recover(); r != nil {
			s.fault("a connection", r)
		}
		if !served {
			_ = nc.Close()
		}
	}()
	s.step("connection")
	who := s.identify(nc.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(), l.addr.Addr())
	// A source that is not identified yet has a client of its own, since it completed a
	// handshake: the node's starting pods do not share the limits of unknown sources.
	connected := who
	connected.known = who.known || who.young
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
		return
	}
	served = true
	go c.serve()
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
		c.slots <- struct{}{} // until no query is under way
	}
	c.l.mu.Lock()
	delete(c.l.conns, c)
	c.l.mu.Unlock()
	c.leave()
}

// read starts the answers of queries until there is no further one.
func (c *conn) read() {
	defer c.l.s.net("a connection")
	r := bufio.NewReaderSize(c, 512)
	for c.next(r) {
	}
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

// take starts the answer to a query; false ends the connection.
func (c *conn) take(packet []byte) (goOn bool) {
	s := c.l.s
	q := &task{s: s, packet: packet, tcp: true, reply: func(wire []byte) { c.reply(wire) }, done: func() {}}
	handedOn := false
	defer func() {
		if r := recover(); r != nil {
			s.fault("a query", r)
			goOn = c.reply(wire.ErrorReply(packet, dns.RcodeServerFailure))
		}
		if !handedOn {
			q.release()
			q.done()
		}
	}()
	s.step("packet")
	// The pod that had the address when the connection began may be gone.
	who := s.identify(c.who.addr, c.l.addr.Addr())
	s.step("identified")
	if !who.young {
		switch s.paced(who, s.elapsed()) {
		case drop:
			return true
		case overPace:
			return c.reply(wire.ErrorReply(packet, dns.RcodeServerFailure))
		}
	}
	if !who.known && !who.young {
		s.stats.Strangers.Add(1)
		return c.reply(wire.ErrorReply(packet, dns.RcodeRefused))
	}
	c.slots <- struct{}{}
	q.done = func() { <-c.slots }
	if who.young {
		if handedOn = s.hold(who, c.l.addr.Addr(), q); !handedOn && s.shed(c.client, s.elapsed()) == overPace {
			return c.reply(wire.ErrorReply(packet, dns.RcodeServerFailure))
		}
		return true
	}
	var ok bool
	if q.slot, ok = s.admit(who); !ok {
		return c.reply(wire.ErrorReply(packet, dns.RcodeServerFailure))
	}
	s.step("admitted")
	q.who, handedOn = who, true
	s.crew.do(q.run)
	return true
}

// reply sends one message; a client that does not take it loses its connection.
func (c *conn) reply(wire []byte) bool {
	if wire == nil {
		return true
	}
	c.l.s.step("reply")
	c.write.Lock()
	defer c.write.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(tcpMessage))
	framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(wire)), uint16(len(wire))) // RFC 1035 §4.2.2
	if _, err := c.Write(append(framed, wire...)); err != nil {
		c.l.s.stats.RepliesLost.Add(1)
		_ = c.Close()
		return false
	}
	return true
}
