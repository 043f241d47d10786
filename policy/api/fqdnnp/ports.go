package fqdnnp

import (
	"fmt"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// ports returns the port set of a rule's ports: every protocol and port if none
// are written. A port that cannot work adds nothing, so a rule all of whose ports
// are such opens the empty set.
func (r *Policy) ports(path string, ports []v1alpha1.Port) policy.PortSet {
	if len(ports) == 0 {
		return policy.AnyPort
	}
	if len(ports) > MaxPorts {
		r.partly(path, "%d ports; write at most %d and put the rest into another rule", len(ports), MaxPorts)
		ports = ports[:MaxPorts]
	}
	var ranges []policy.PortRange
	for i := range ports {
		ranges = r.port(fmt.Sprintf("%s[%d]", path, i), &ports[i], ranges)
	}
	return policy.NewPortSet(ranges...)
}

// port appends the ranges of one port, none if it cannot work.
func (r *Policy) port(path string, p *v1alpha1.Port, ranges []policy.PortRange) []policy.PortRange {
	first, last, ok := r.bounds(path, p)
	if !ok {
		return ranges
	}
	add := func(protocols ...policy.Protocol) []policy.PortRange {
		for _, proto := range protocols {
			ranges = append(ranges, policy.PortRange{Protocol: proto, First: first, Last: last})
		}
		return ranges
	}
	protocol := v1alpha1.ProtocolALL
	switch {
	case p.Protocol != nil:
		protocol = *p.Protocol
	case p.Port != nil:
		protocol = v1alpha1.ProtocolTCP
	}
	switch protocol {
	case v1alpha1.ProtocolTCP:
		return add(policy.TCP)
	case v1alpha1.ProtocolUDP:
		return add(policy.UDP)
	case v1alpha1.ProtocolSCTP:
		return add(policy.SCTP)
	case v1alpha1.ProtocolALL:
		if p.Port == nil {
			return add(policy.AnyProtocol)
		}
		return add(policy.TCP, policy.UDP, policy.SCTP)
	}
	r.partly(path+".protocol", "%q is unknown; write TCP, UDP, SCTP or ALL", protocol)
	return ranges
}

// bounds returns the first and last port, 0 and 65535 if none is written.
func (r *Policy) bounds(path string, p *v1alpha1.Port) (first, last uint16, ok bool) {
	for _, f := range []struct {
		field string
		value *int32
	}{{".port", p.Port}, {".endPort", p.EndPort}} {
		if f.value != nil && (*f.value < 1 || *f.value > 65535) {
			r.partly(path+f.field, "%d is no port; write 1 to 65535, or leave it out for every port", *f.value)
			return 0, 0, false
		}
	}
	switch {
	case p.EndPort != nil && p.Port == nil:
		r.partly(path+".endPort", "endPort %d stands alone; write the first port of the range as port", *p.EndPort)
		return 0, 0, false
	case p.EndPort != nil && *p.EndPort < *p.Port:
		r.partly(path+".endPort", "endPort %d is below port %d; write the greater one as endPort", *p.EndPort, *p.Port)
		return 0, 0, false
	case p.Port == nil:
		return 0, 65535, true
	case p.EndPort == nil:
		return uint16(*p.Port), uint16(*p.Port), true
	}
	return uint16(*p.Port), uint16(*p.EndPort), true
}

// EgressPorts returns the union of the port sets of the rules that can open something,
// "" if none can. Whether the policy enforces does not matter.
func (r *Policy) EgressPorts() policy.PortSet {
	var ranges []policy.PortRange
	for _, rule := range r.Rules {
		ranges = append(ranges, rule.Ports.Ranges()...)
	}
	return policy.NewPortSet(ranges...)
}
