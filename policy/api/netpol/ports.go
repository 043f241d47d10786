package netpol

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fields"
	"github.com/namegate/namegate/policy/peers"
)

// MaxPeerPorts bounds the ranges of ports of one rule of a NetworkPolicy, when they are as
// few as they can be: a packet may be compared with each.
const MaxPeerPorts = 512

// ports returns the numeric and the named ports of a rule. An invalid port adds nothing.
func (r *reader) ports(path string, ports []networkingv1.NetworkPolicyPort) (policy.PortSet, []peers.PortName) {
	if len(ports) == 0 {
		return policy.AnyPort, nil
	}
	var ranges []policy.PortRange
	var names []peers.PortName
	for i := range ports {
		at, p := fmt.Sprintf("%s[%d]", path, i), &ports[i]
		proto, ok := r.protocol(at+".protocol", p.Protocol)
		switch {
		case !ok:
		case p.Port != nil && p.Port.Type == intstr.String:
			if r.portName(at, p) {
				names = append(names, peers.PortName{Name: p.Port.StrVal, Protocol: proto})
			}
		default:
			report := fields.Report(func(path, format string, args ...any) { r.Partly(path, format+"; the port opens nothing", args...) })
			var number *int32
			if p.Port != nil {
				number = &p.Port.IntVal
			}
			if first, last, ok := report.PortRange(at, number, p.EndPort); ok {
				ranges = append(ranges, policy.PortRange{Protocol: proto, First: first, Last: last})
			}
		}
	}
	slices.SortFunc(names, peers.PortName.Compare)
	return r.portSet(path, ranges), slices.Compact(names)
}

func (r *reader) portSet(path string, written []policy.PortRange) policy.PortSet {
	set := policy.NewPortSet(written...)
	if len(written) <= MaxPeerPorts {
		return set
	}
	ranges := set.Ranges()
	if len(ranges) <= MaxPeerPorts {
		return set
	}
	r.Partly(path, "the ports make %d ranges, and those after %v open nothing; write wider ranges, or several rules, each of %d ranges at most",
		len(ranges), ranges[MaxPeerPorts-1], MaxPeerPorts)
	return policy.NewPortSet(ranges[:MaxPeerPorts]...)
}

// protocol returns the protocol of a port: TCP where none is written.
func (r *reader) protocol(path string, written *corev1.Protocol) (policy.Protocol, bool) {
	p, ok := policy.ProtocolOf(ptr.Deref(written, corev1.ProtocolTCP))
	if ok = ok && (written == nil || *written != ""); !ok {
		r.Partly(path, "%q is unknown, and the port opens nothing; write TCP, UDP or SCTP", *written)
	}
	return p, ok
}

// portName tells whether a port's name can be one of a pod's.
func (r *reader) portName(path string, p *networkingv1.NetworkPolicyPort) bool {
	switch {
	case len(validation.IsValidPortName(p.Port.StrVal)) > 0:
		r.Partly(path+".port", "%q is no name of a port, and opens nothing; write the name of a container port, or a number without quotes", p.Port.StrVal)
	case p.EndPort != nil:
		r.Partly(path+".endPort", "a range begins with a number, and %q is a name; the port opens nothing: write its number, or leave out endPort", p.Port.StrVal)
	default:
		return true
	}
	return false
}

// PortsPerUnit is how many ports of a protocol cost one unit of the quotas, a range
// counting as two of one unit.
const PortsPerUnit = 15

// Cost returns the units that a port set costs of the quotas, 0 for the empty set: the
// work of comparing a packet grows with them.
func Cost(set policy.PortSet) int {
	units, used, last := 0, PortsPerUnit, policy.AnyProtocol
	for _, r := range set.Ranges() {
		if r.Protocol != last {
			used, last = PortsPerUnit, r.Protocol
		}
		ports := 1
		if r.First != r.Last {
			ports = 2
		}
		if used += ports; used > PortsPerUnit {
			units, used = units+1, ports
		}
	}
	return units
}
