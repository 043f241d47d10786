// Package failsafe has the failsafes of a node as values: destinations that the node reaches
// whatever its policies say, why, and what could not be determined. Package agent/failsafes
// computes them, the enforcer writes them, the console prints them. The package is pure.
package failsafe

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// Entry is one failsafe.
type Entry struct {
	policy.Failsafe
	// Match narrows an entry that destination and ports do not describe alone. It is an
	// expression of nftables, such as "oifname lo". Only the entries of Fixed have one.
	Match string
	// Gone is when the source ceased to list the entry; zero while the source lists it.
	Gone time.Time
}

// ICMP and the other protocols without ports that nodes use between each other.
const (
	ICMP   policy.Protocol = 1
	IGMP   policy.Protocol = 2
	IPIP   policy.Protocol = 4
	IPv6   policy.Protocol = 41
	GRE    policy.Protocol = 47
	ESP    policy.Protocol = 50
	AH     policy.Protocol = 51
	ICMPv6 policy.Protocol = 58
	OSPF   policy.Protocol = 89
	PIM    policy.Protocol = 103
	VRRP   policy.Protocol = 112
)

var protocolNames = map[policy.Protocol]string{
	policy.TCP: "TCP", policy.UDP: "UDP", policy.SCTP: "SCTP", ICMP: "ICMP", IGMP: "IGMP", IPIP: "IPIP", IPv6: "IPv6-in-IP",
	GRE: "GRE", ESP: "ESP", AH: "AH", ICMPv6: "ICMPv6", OSPF: "OSPF", PIM: "PIM", VRRP: "VRRP",
}

// Protocol returns the name of the entry's protocol for people, its number if it has no name
// here, or "every protocol".
func (e *Entry) Protocol() string {
	p := e.Ports.Protocol
	if p == policy.AnyProtocol {
		return "every protocol"
	}
	return cmp.Or(protocolNames[p], "protocol "+p.String())
}

// PortText returns the ports for people; "" where the entry has every port or no ports.
func (e *Entry) PortText() string {
	r := e.Ports
	switch {
	case r.Protocol == policy.AnyProtocol || r.First == 0 && r.Last == 65535:
		return ""
	case r.First == r.Last:
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Destination returns the destination without ports for people: an address, or a range.
func (e *Entry) Destination() string {
	switch {
	case !e.Prefix.IsValid():
		return "every address"
	case e.Prefix.IsSingleIP():
		return e.Prefix.Addr().String()
	}
	return e.Prefix.String()
}

// String returns "failsafe PROTOCOL DESTINATION:PORT: REASON (SOURCE)".
func (e *Entry) String() string {
	to := e.Destination()
	if ports := e.PortText(); ports != "" {
		if e.Prefix.Addr().Is6() {
			to = "[" + to + "]"
		}
		to += ":" + ports
	}
	if e.Match != "" {
		to = strings.TrimPrefix(to+" ", "every address ") + e.Match
	}
	return fmt.Sprintf("failsafe %s %s: %s (%s)%s", e.Protocol(), to, e.Reason, e.Source, e.Remark())
}

// Remark returns the exceptions of an entry for people, with a leading space, or "".
func (e *Entry) Remark() string {
	switch {
	case !e.Gone.IsZero():
		return " [not listed since " + e.Gone.UTC().Format(time.RFC3339) + "]"
	case e.Yields:
		return " [unless a policy names it]"
	}
	return ""
}

// Compare orders entries by reason, destination, ports and source.
func Compare(a, b Entry) int {
	return cmp.Or(
		cmp.Compare(a.Reason, b.Reason),
		a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()),
		cmp.Compare(a.Ports.Protocol, b.Ports.Protocol), cmp.Compare(a.Ports.First, b.Ports.First), cmp.Compare(a.Ports.Last, b.Ports.Last),
		cmp.Compare(a.Source, b.Source), cmp.Compare(a.Match, b.Match), a.Gone.Compare(b.Gone),
	)
}

// Target is a destination as a configuration has it. Host is an address or a name.
type Target struct {
	Host           string
	Ports          policy.PortRange
	Reason, Source string
}

// At returns the target's entry for an address.
func (t *Target) At(a netip.Addr) Entry {
	a = policy.CleanAddr(a)
	return Entry{Failsafe: policy.Failsafe{Prefix: netip.PrefixFrom(a, a.BitLen()), Ports: t.Ports, Reason: t.Reason, Source: t.Source}}
}

// Finding is a failsafe that could not be determined.
type Finding struct {
	// Source is the failing file, kernel table or name.
	Source string
	// Message says what is missing and what to do.
	Message string
	// Failed: the source could not be read. Otherwise the source was read, and does not have
	// what the node needs.
	Failed bool
	// Stale: the source was read before. Its last entries stay, so nothing is missing.
	Stale bool
	// Port settles the finding when a `failsafe` of the Corefile has it; 0: none does.
	Port uint16
}

// String returns the finding in one line.
func (f *Finding) String() string { return f.Source + ": " + f.Message }

// List is every failsafe of a node at one moment, sorted by Compare. It is not changed.
type List struct {
	Entries []Entry
	// Names are the targets with a name: the host's own queries for them may open the
	// answered addresses at once.
	Names []Target
	// Queries has Names by the names that the host's programs query for them, with the suffixes of
	// their search list too.
	Queries  map[fqdn.Name][]Target
	Findings []Finding
}

// Complete tells whether the policies of the node may be enforced: no failsafe is unknown.
// Findings that are stale do not count, since an outage must not open a node.
func (l *List) Complete() bool {
	return !slices.ContainsFunc(l.Findings, func(f Finding) bool { return !f.Stale })
}

// Fixed returns the failsafes that every node has.
func Fixed() []Entry {
	const source = "every node"
	fixed := func(p policy.Protocol, to, match, reason string) Entry {
		e := Entry{Match: match, Failsafe: policy.Failsafe{Ports: AllPorts(p), Reason: reason, Source: source}}
		if to != "" {
			e.Prefix = netip.MustParsePrefix(to)
		}
		return e
	}
	return []Entry{
		fixed(policy.AnyProtocol, "", "oifname lo", "loopback"),
		// RFC 4861. Conntrack does not track them, so answers are judged too.
		fixed(ICMPv6, "", "icmpv6 type 133-137", "neighbour discovery"),
		// RFC 2710, RFC 3810.
		fixed(ICMPv6, "ff00::/8", "icmpv6 type { 130-132, 143 }", "multicast listener discovery"),
		fixed(IGMP, "224.0.0.0/4", "", "multicast group membership"),
		// The source ports are the system's: a process without privileges has no use of them.
		fixed(policy.UDP, "0.0.0.0/0", "udp sport 68 udp dport 67", "DHCP"),
		fixed(policy.UDP, "::/0", "udp sport 546 udp dport 547", "DHCPv6"),
		// The addresses of RFC 2328, RFC 5340 and RFC 5798 do not leave the link.
		fixed(OSPF, "224.0.0.5/32", "", "OSPF routers"),
		fixed(OSPF, "224.0.0.6/32", "", "OSPF routers"),
		fixed(OSPF, "ff02::5/128", "", "OSPF routers"),
		fixed(OSPF, "ff02::6/128", "", "OSPF routers"),
		fixed(VRRP, "224.0.0.18/32", "", "VRRP routers"),
		fixed(VRRP, "ff02::12/128", "", "VRRP routers"),
	}
}

// AllPorts returns every port of a protocol.
func AllPorts(p policy.Protocol) policy.PortRange {
	return policy.PortRange{Protocol: p, Last: 65535}
}

// Port returns one port of a protocol.
func Port(p policy.Protocol, port uint16) policy.PortRange {
	return policy.PortRange{Protocol: p, First: port, Last: port}
}
