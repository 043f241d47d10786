package answer

import (
	"net"
	"net/netip"
	"slices"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/wire"
)

// Checked is the checked content of an answer.
type Checked struct {
	// Chain are the targets of the CNAMEs that the question leads through.
	Chain []fqdn.Name
	// Addrs are the addresses, in the order of the answer.
	Addrs []wire.Address
	// Over is how many more there were, beyond the bound.
	Over int
	// Reason says why the answer is not to be trusted; "" is an honest one. An
	// answer that is not honest has no addresses.
	Reason string
}

// reached is an owner that the question leads to, and the least TTL until there.
type reached struct {
	name fqdn.Name
	ttl  uint32
}

// Check reads from an answer the addresses that count for the question: A and
// AAAA records of the type that was asked, and the hints of HTTPS and SVCB
// records, whose owner the question reaches through the CNAMEs of the answer
// section. At most most of them are returned. It does not change the message.
func Check(q wire.Question, m *dns.Msg, most int) Checked {
	var c Checked
	echo, ok := ReadQuestion(m)
	switch {
	case !m.Response || m.Opcode != dns.OpcodeQuery:
		c.Reason = "it is not a response to a query"
	case !ok || echo != q:
		c.Reason = "it answers another question"
	case m.Truncated:
		c.Reason = "it is truncated"
	}
	if c.Reason != "" || m.Rcode != dns.RcodeSuccess {
		return c
	}
	owners, reason := follow(q, m.Answer)
	if reason != "" {
		c.Reason = reason
		return c
	}
	for _, o := range owners[1:] {
		c.Chain = append(c.Chain, o.name)
	}
	c.collect(q, owners, m.Answer, most)
	return c
}

// alias is one CNAME record.
type alias struct {
	owner, target fqdn.Name
	ttl           uint32
}

// follow walks from the question's name through the CNAMEs, first of each owner.
func follow(q wire.Question, answer []dns.RR) (owners []reached, reason string) {
	owners = append(make([]reached, 0, 4), reached{q.Name, wire.MaxTTL})
	if q.Type == dns.TypeCNAME {
		return owners, ""
	}
	var aliases []alias
	for _, rr := range answer {
		cname, ok := rr.(*dns.CNAME)
		if !ok || cname.Hdr.Class != dns.ClassINET {
			continue
		}
		owner, err := fqdn.ParseName(cname.Hdr.Name)
		if err != nil {
			continue
		}
		if target, err := fqdn.ParseName(cname.Target); err == nil {
			aliases = append(aliases, alias{owner, target, wire.ValidTTL(cname.Hdr.Ttl)})
		}
	}
	for {
		last := owners[len(owners)-1]
		i := slices.IndexFunc(aliases, func(a alias) bool { return a.owner == last.name })
		if i < 0 {
			return owners, ""
		}
		next := aliases[i]
		if slices.ContainsFunc(owners, func(o reached) bool { return o.name == next.target }) {
			return nil, "its CNAMEs run in a circle"
		}
		if len(owners) > wire.MaxChain {
			return nil, "its chain of CNAMEs is too long"
		}
		owners = append(owners, reached{next.target, min(last.ttl, next.ttl)})
	}
}

func (c *Checked) collect(q wire.Question, owners []reached, answer []dns.RR, most int) {
	text, at := "", -1 // the last owner as spelled, and which of owners it is
	for i, rr := range answer {
		ips := addressesOf(rr, q.Type)
		if len(ips) == 0 {
			continue
		}
		hdr := rr.Header()
		if hdr.Name != text {
			text, at = hdr.Name, indexOf(owners, hdr.Name)
		}
		if at < 0 || hdr.Class != dns.ClassINET {
			continue
		}
		for _, ip := range ips {
			a, ok := netip.AddrFromSlice(ip)
			if !ok {
				continue
			}
			if len(c.Addrs) >= most {
				c.Over++
				continue
			}
			c.Addrs = append(c.Addrs, wire.Address{Addr: a.Unmap(), TTL: min(owners[at].ttl, wire.ValidTTL(hdr.Ttl)), Record: i})
		}
	}
}

// indexOf returns which of the owners the spelled name is, -1 for none.
func indexOf(owners []reached, text string) int {
	n, err := fqdn.ParseName(text)
	if err != nil {
		return -1
	}
	return slices.IndexFunc(owners, func(o reached) bool { return o.name == n })
}

// addressesOf returns the addresses in a record that answer a question of the
// type: an AAAA record in the answer to a question for A is none.
func addressesOf(rr dns.RR, asked uint16) []net.IP {
	any := asked == dns.TypeANY
	switch rr := rr.(type) {
	case *dns.A:
		if ip := rr.A.To4(); ip != nil && (any || asked == dns.TypeA) {
			return []net.IP{ip}
		}
	case *dns.AAAA:
		if len(rr.AAAA) == net.IPv6len && (any || asked == dns.TypeAAAA) {
			return []net.IP{rr.AAAA}
		}
	case *dns.HTTPS:
		if any || asked == dns.TypeHTTPS {
			return hints(&rr.SVCB)
		}
	case *dns.SVCB:
		if any || asked == dns.TypeSVCB {
			return hints(rr)
		}
	}
	return nil
}
