package proxy

import (
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/proxy/listener"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
)

// handler takes the packets and connections of one address.
type handler struct {
	s       *Server
	local   netip.Addr
	host    netip.Addr     // the resolver of the host whose queries by the node come here; none for another address
	queries upstream.Batch // of the packets that came together
}

// Packets implements listener.Handler.
func (h *handler) Packets(b listener.Batch) {
	defer h.queries.Send()
	started := h.s.now()
	for i := range b.Len {
		p := b.Packet(i)
		h.take(&p, started)
	}
}

// take answers the packet or starts its query.
func (h *handler) take(p *listener.Packet, started time.Time) {
	if !h.s.protect("a packet", func() { h.packet(p, started) }) {
		sendError(p, dns.RcodeServerFailure)
	}
}

// packet identifies the client and answers from the packet cache, or starts the query.
func (h *handler) packet(p *listener.Packet, started time.Time) {
	s, packet := h.s, p.Bytes
	if !wire.IsQuery(packet) {
		s.stats.Malformed.Add(1)
		return
	}
	if s.probes.Take(packet) {
		return // of the self-test: that it came is the answer
	}
	c, rcode := h.meet(p.From.Addr(), started.Sub(s.started))
	switch {
	case rcode != dns.RcodeSuccess:
		sendError(p, rcode)
		return
	case c.unidentified:
		h.park(p, &c)
		return
	}
	view, plain := wire.ParseQuery(packet)
	kept := false
	if plain {
		var n int
		if n, kept = s.cached(&view, &c, started, p.Room()); n > 0 {
			p.Reply(n)
			return
		}
	}
	h.query(p, &c, &view, plain, kept, started)
}

// query starts the query of the packet if it is admitted. Its view counts where it is plain;
// kept: the cache has an answer.
func (h *handler) query(p *listener.Packet, c *identity, view *wire.QueryView, plain, kept bool, started time.Time) {
	s := h.s
	slot, ok := s.admit(c)
	if !ok {
		sendError(p, dns.RcodeServerFailure)
		return
	}
	q := s.newQuery(p.Bytes, c, nil, started)
	q.udp = udpReplier{p.Later()}
	q.to, q.slot = &q.udp, slot
	if plain {
		q.setView(view)
	}
	if plain && !kept && (view.Type() == dns.TypeA || view.Type() == dns.TypeAAAA) {
		q.missed, q.batch = true, &h.queries
		q.run()
		return
	}
	q.do(q.start) // it is for the dns library
}

// sendError replies to the packet without records, unless that is silence.
func sendError(p *listener.Packet, rcode int) {
	if rcode != silence {
		p.Reply(len(wire.AppendErrorReply(p.Room()[:0], p.Bytes, rcode)))
	}
}

// park makes a query wait for its source to be known.
func (h *handler) park(p *listener.Packet, c *identity) {
	to, ok := &udpReplier{p.Later()}, false
	defer func() {
		if !ok {
			to.Done()
		}
	}()
	if ok = h.s.park(*c, &parkedQuery{local: h.local, packet: slices.Clone(p.Bytes), to: to}); !ok {
		sendError(p, h.s.shed(h.s.clients.Unknown(), h.s.elapsed()))
	}
}

// udpReplier replies to a client over UDP.
type udpReplier struct{ listener.Replier }

// stream implements replier.
func (u *udpReplier) stream() bool { return false }

// reply implements replier.
func (u *udpReplier) reply(packet []byte, batched bool) { u.Reply(packet, batched) }

// done implements replier.
func (u *udpReplier) done(*query) { u.Done() }
