package policy

import "net/netip"

// Failsafe is destinations that a node reaches whatever the rules of its policies are.
type Failsafe struct {
	Prefix netip.Prefix // masked; an IPv4 prefix is not mapped
	// Ports are of one protocol, or AnyProtocol. A protocol without ports has 0 to 65535.
	Ports PortRange
	// Reason tells why the node needs them, Source where they were found.
	Reason, Source string
	// Yields: a rule of a policy of the node that lists the address among its networks, pods or
	// nodes decides instead.
	Yields bool
}

// Contains tells whether the destination of a flow is one of them. A protocol without ports is
// asked for with port 0.
func (f *Failsafe) Contains(p Protocol, to netip.AddrPort) bool {
	r := f.Ports
	return f.Prefix.Contains(CleanAddr(to.Addr())) && (r.Protocol == AnyProtocol || r.Protocol == p && r.First <= to.Port() && to.Port() <= r.Last)
}

// String returns PREFIX PORTS, with the ports as a PortSet has them.
func (f *Failsafe) String() string { return f.Prefix.String() + " " + f.Ports.String() }
