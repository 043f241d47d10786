package proxy

import (
	"net/netip"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/limit"
	"github.com/namegate/namegate/proxy/listener"
	"github.com/namegate/namegate/proxy/wire"
)

// conn is one client's connection.
type conn struct {
	*listener.Conn
	s      *Server
	h      *handler
	addr   netip.Addr // of the client
	client *limit.Client
}

// Connect implements listener.Handler: it takes the connection if the limits allow one
// more.
func (h *handler) Connect(lc *listener.Conn) (listener.Client, bool) {
	s := h.s
	who := h.identify(lc.From().Addr())
	// A source that is not identified yet has a client of its own, since it completed a
	// handshake: the node's starting pods do not share the limits of unknown sources.
	connected := who
	connected.known = who.known || who.unidentified
	c := &conn{Conn: lc, s: s, h: h, addr: who.addr, client: s.client(&connected)}
	return c, s.clients.Connect(c.client, &s.setup.Load().config.Limits, who.node)
}

// Disconnect implements listener.Client.
func (c *conn) Disconnect() { c.s.clients.Disconnect(c.client) }

// Message implements listener.Client: it starts a query.
func (c *conn) Message(packet []byte) (goOn bool) {
	if !wire.IsQuery(packet) {
		c.s.stats.Malformed.Add(1)
		return false
	}
	if !c.s.protect("a query", func() { goOn = c.query(packet) }) {
		c.s.replyToFault(func() { goOn = c.Send(wire.ErrorReply(packet, dns.RcodeServerFailure)) })
	}
	return goOn
}

// query identifies the client and starts the query if it is admitted.
func (c *conn) query(packet []byte) (goOn bool) {
	s := c.s
	// The pod that had the address when the connection began may be gone.
	who, rcode := c.h.meet(c.addr, s.elapsed())
	if rcode != dns.RcodeSuccess {
		return c.refuse(packet, rcode)
	}
	c.Begin()
	handedOn := false
	defer func() {
		if !handedOn {
			c.Done()
		}
	}()
	if who.unidentified {
		handedOn = s.park(who, &parkedQuery{local: c.h.local, packet: packet, to: c})
		if !handedOn {
			return c.refuse(packet, s.shed(c.client, s.elapsed()))
		}
		return true
	}
	slot, ok := s.admit(&who)
	if !ok {
		return c.refuse(packet, dns.RcodeServerFailure)
	}
	q := s.newQuery(packet, &who, c, s.now())
	q.slot, handedOn = slot, true
	q.do(q.start)
	return true
}

// refuse replies without records, unless that is silence.
func (c *conn) refuse(packet []byte, rcode int) (goOn bool) {
	return rcode == silence || c.Send(wire.ErrorReply(packet, rcode))
}

// stream implements replier.
func (c *conn) stream() bool { return true }

// reply implements replier.
func (c *conn) reply(packet []byte, _ bool) { c.Send(packet) }

// done implements replier.
func (c *conn) done(*query) { c.Done() }
