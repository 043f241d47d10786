package fields

import (
	"fmt"
	"slices"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// Port returns the ranges of one port, none if it cannot work. A port without a protocol is
// one of every protocol.
func (r Report) Port(path string, p *v1alpha1.Port) []policy.PortRange {
	first, last, ok := r.PortRange(path, p.Port, p.EndPort)
	if !ok {
		return nil
	}
	of := func(protocols ...policy.Protocol) (ranges []policy.PortRange) {
		for _, proto := range protocols {
			ranges = append(ranges, policy.PortRange{Protocol: proto, First: first, Last: last})
		}
		return ranges
	}
	protocol := v1alpha1.ProtocolALL
	if p.Protocol != nil {
		protocol = *p.Protocol
	}
	switch protocol {
	case v1alpha1.ProtocolTCP:
		return of(policy.TCP)
	case v1alpha1.ProtocolUDP:
		return of(policy.UDP)
	case v1alpha1.ProtocolSCTP:
		return of(policy.SCTP)
	case v1alpha1.ProtocolALL:
		if p.Port == nil {
			return of(policy.AnyProtocol)
		}
		return of(policy.TCP, policy.UDP, policy.SCTP)
	}
	r(path+".protocol", "%q is unknown; write TCP, UDP, SCTP or ALL", protocol)
	return nil
}

// Ports reads the ports of a rule, of which there may be at most most: every protocol and port if none are
// written. A port that cannot work adds nothing.
func Ports(r Report, path string, ports []v1alpha1.Port, most int) policy.PortSet {
	if len(ports) == 0 {
		return policy.AnyPort
	}
	if len(ports) > most {
		r(path, "%d ports; write at most %d and put the rest into another rule", len(ports), most)
		ports = ports[:most]
	}
	var ranges []policy.PortRange
	for i := range ports {
		ranges = append(ranges, r.Port(fmt.Sprintf("%s[%d]", path, i), &ports[i])...)
	}
	return policy.NewPortSet(ranges...)
}

// PortRange returns the first and last port, 0 and 65535 if none is written.
func (r Report) PortRange(path string, port, endPort *int32) (first, last uint16, ok bool) {
	for _, f := range []struct {
		field string
		value *int32
	}{{".port", port}, {".endPort", endPort}} {
		if f.value != nil && !policy.IsPort(*f.value) {
			r(path+f.field, "%d is no port; write 1 to 65535, or leave it out for every port", *f.value)
			return 0, 0, false
		}
	}
	switch {
	case endPort != nil && port == nil:
		r(path+".endPort", "endPort %d stands alone; write the first port of the range as port", *endPort)
		return 0, 0, false
	case endPort != nil && *endPort < *port:
		r(path+".endPort", "endPort %d is below port %d; write the greater one as endPort", *endPort, *port)
		return 0, 0, false
	case port == nil:
		return 0, 65535, true
	case endPort == nil:
		return uint16(*port), uint16(*port), true
	}
	return uint16(*port), uint16(*endPort), true
}

// ServerName reads whether a rule requires the server name, and whether its ports let it.
func (r Report) ServerName(path string, written v1alpha1.ServerName, ports policy.PortSet) (required, ok bool) {
	if word(r, path, written, v1alpha1.ServerNameIgnore, v1alpha1.ServerNameRequire, v1alpha1.ServerNameIgnore, v1alpha1.ServerNameRequire) != v1alpha1.ServerNameRequire {
		return false, true
	}
	if slices.ContainsFunc(ports.Ranges(), func(p policy.PortRange) bool { return p.Protocol != policy.TCP }) {
		r(path, "server names are of TLS over TCP; with Require, write ports, each with protocol: TCP, for example {protocol: TCP, port: 443}")
		return true, false
	}
	return true, true
}
