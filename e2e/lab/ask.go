package lab

import (
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// Ask asks a DNS server from the host for a name, on a connection of its own.
func (h *Host) Ask(network string, server netip.AddrPort, name string, qtype uint16, patience time.Duration) (*dns.Msg, error) {
	c, err := h.Dial(network, server.String(), patience)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return Exchange(c, name, qtype, patience)
}

// Exchange asks for a name on a connection, and returns the reply to that query.
func Exchange(c net.Conn, name string, qtype uint16, patience time.Duration) (*dns.Msg, error) {
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
	m.SetEdns0(1232, false)
	conn := &dns.Conn{Conn: c, UDPSize: 1232}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if err := conn.WriteMsg(m); err != nil {
		return nil, err
	}
	for {
		r, err := conn.ReadMsg()
		if err != nil || r.Id == m.Id {
			return r, err
		}
	}
}

// Addresses returns the addresses of a reply's answer.
func Addresses(r *dns.Msg) (out []netip.Addr) {
	for _, rr := range r.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			a, _ := netip.AddrFromSlice(rr.A.To4())
			out = append(out, a)
		case *dns.AAAA:
			a, _ := netip.AddrFromSlice(rr.AAAA)
			out = append(out, a)
		}
	}
	return out
}
