package cnp

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/peers"
)

// ports returns the ports of a rule that are numbers, and adds those that are names: every
// protocol and port where none are written.
func (r *ruleReader) ports(path string, protocols []protocol) policy.PortSet {
	switch {
	case protocols == nil:
		return policy.AnyPort
	case len(protocols) == 0 || len(protocols) > MaxProtocols:
		r.fail(path, "%d protocols; write 1 to %d, or leave protocols out for every port", len(protocols), MaxProtocols)
	}
	var ranges []policy.PortRange
	var names []peers.PortName
	for i := range protocols {
		at, p := fmt.Sprintf("%s[%d]", path, i), &protocols[i]
		kinds := 0
		add := func(field string, of policy.Protocol, to *port) {
			kinds++
			if first, last, ok := r.portRange(at+field+".destinationPort", to); ok {
				ranges = append(ranges, policy.PortRange{Protocol: of, First: first, Last: last})
			}
		}
		if p.TCP != nil {
			add(".tcp", policy.TCP, p.TCP.DestinationPort)
		}
		if p.UDP != nil {
			add(".udp", policy.UDP, p.UDP.DestinationPort)
		}
		if p.SCTP != nil {
			add(".sctp", policy.SCTP, p.SCTP.DestinationPort)
		}
		if p.DestinationNamedPort != "" {
			kinds++
			names = append(names, r.named(at+".destinationNamedPort", p.DestinationNamedPort)...)
		}
		if kinds != 1 {
			r.fail(at, "write exactly one of tcp, udp, sctp and destinationNamedPort; the standard CRD does not know destinationNamedPort, the experimental one does")
		}
	}
	slices.SortFunc(names, peers.PortName.Compare)
	r.to.PortNames = slices.Compact(names)
	return policy.NewPortSet(ranges...)
}

// named returns what a name of a port stands for: the ports of pods that have it, of any
// protocol.
func (r *ruleReader) named(path, name string) (names []peers.PortName) {
	if r.to.Elsewhere() || len(r.to.Names) > 0 {
		r.fail(path, "nodes, networks and domainNames have no ports with names; write the number, or a rule for namespaces and pods alone")
	}
	if len(validation.IsValidPortName(name)) > 0 {
		r.fail(path, "%q is no name of a port; write the name of a container port", name)
	}
	for _, of := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP} {
		names = append(names, peers.PortName{Name: name, Protocol: of})
	}
	return names
}

// portRange reads a number or a range.
func (r *ruleReader) portRange(path string, p *port) (first, last uint16, ok bool) {
	if p == nil || (p.Number == 0) == (p.Range == nil) {
		r.fail(path, "write exactly one of number and range")
		return 0, 0, false
	}
	from, to := p.Number, p.Number
	if p.Range != nil {
		from, to = p.Range.Start, p.Range.End
	}
	switch {
	case from < 1 || from > 65535 || to < 1 || to > 65535:
		r.fail(path, "%d to %d; write ports from 1 to 65535", from, to)
	case p.Range != nil && from >= to:
		r.fail(path+".range", "start %d is not below end %d; write number for one port", from, to)
	default:
		return uint16(from), uint16(to), true
	}
	return 0, 0, false
}
