package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Failsafe is a row of the table of failsafes: what leaves and what reaches a node whatever the rules of its
// policies are.
type Failsafe struct {
	// Name tells the row from others for people. Name and Ports are of one row alone.
	Name string
	// In: sources of what arrives. Out: destinations of what leaves.
	In, Out bool
	// Networks are masked, sorted, and each there once; an IPv4 network is not mapped.
	Networks []netip.Prefix
	// Ports are nil for every protocol. A protocol without ports has 0 to 65535.
	Ports []PortRange
	// Yields: a rule of a policy of the node that lists the address among its networks, pods or
	// nodes decides instead.
	Yields bool
}

// Contains tells whether the other end of a flow, with the port that is dialled, is one of them. A protocol without ports is
// asked for with port 0.
func (f *Failsafe) Contains(p Protocol, to netip.AddrPort) bool {
	a := CleanAddr(to.Addr())
	return f.HasPort(p, to.Port()) && slices.ContainsFunc(f.Networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// HasPort tells whether the row has a port of a protocol.
func (f *Failsafe) HasPort(p Protocol, port uint16) bool {
	return f.Ports == nil || slices.ContainsFunc(f.Ports, func(r PortRange) bool { return r.Protocol == p && r.First <= port && port <= r.Last })
}

// Same tells whether two rows are equal.
func (f *Failsafe) Same(o *Failsafe) bool {
	return f.Name == o.Name && f.In == o.In && f.Out == o.Out && f.Yields == o.Yields && slices.Equal(f.Ports, o.Ports) && slices.Equal(f.Networks, o.Networks)
}

// IPIP and ESP are protocols without ports that overlay networks use between nodes.
const (
	IPIP Protocol = 4
	ESP  Protocol = 50
)

// protocolNames are the names of protocols in tables for people.
var protocolNames = map[Protocol]string{TCP: "TCP", UDP: "UDP", SCTP: "SCTP", IPIP: "IP-in-IP", ESP: "ESP"}

// PortText returns the ports for people, such as "TCP 179 2379-2380, ESP".
func (f *Failsafe) PortText() string {
	if f.Ports == nil {
		return "every protocol"
	}
	var parts []string
	for i, r := range f.Ports {
		number := fmt.Sprint(r.First)
		if r.First != r.Last {
			number += fmt.Sprintf("-%d", r.Last)
		}
		name := cmp.Or(protocolNames[r.Protocol], "protocol "+r.Protocol.String())
		switch {
		case r.First == 0 && r.Last == 65535:
			parts = append(parts, name)
		case i > 0 && f.Ports[i-1].Protocol == r.Protocol:
			parts[len(parts)-1] += " " + number
		default:
			parts = append(parts, name+" "+number)
		}
	}
	return strings.Join(parts, ", ")
}
