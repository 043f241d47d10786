package fqdnnp

import (
	"fmt"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// ReasonPortWithoutProtocol is of the event and of the finding about ports whose meaning
// changed: they are for TCP, UDP and SCTP, and were for TCP alone in earlier releases.
const ReasonPortWithoutProtocol = "PortWithoutProtocol"

// BarePort is a port that has a number and no protocol.
type BarePort struct {
	Path  string // "spec.egress[0].ports[1]"
	Ports string // "443", "8000-9000"
}

// String returns the path and the port.
func (b BarePort) String() string { return b.Path + " (" + b.Ports + ")" }

// BarePorts returns the ports that have a number and no protocol.
func BarePorts(spec *v1alpha1.FQDNNetworkPolicySpec) (out []BarePort) {
	eachBare(spec, func(rule, port int, p *v1alpha1.Port) {
		ports := fmt.Sprint(*p.Port)
		if p.EndPort != nil {
			ports += fmt.Sprintf("-%d", *p.EndPort)
		}
		out = append(out, BarePort{fmt.Sprintf("spec.egress[%d].ports[%d]", rule, port), ports})
	})
	return out
}

func eachBare(spec *v1alpha1.FQDNNetworkPolicySpec, each func(rule, port int, p *v1alpha1.Port)) {
	for i := range spec.Egress {
		for j := range spec.Egress[i].Ports {
			if p := &spec.Egress[i].Ports[j]; p.Port != nil && p.Protocol == nil {
				each(i, j, p)
			}
		}
	}
}
