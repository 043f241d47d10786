package companion

import (
	"fmt"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/status/event"
)

// Ports says whose companions open the ports of their policies' rules beside the endpoint.
type Ports string

// The values of Ports; the zero value is PortsNever.
const (
	PortsNever  Ports = "Never"
	PortsAsked  Ports = "Asked"  // companions of policies with the annotation
	PortsAlways Ports = "Always" // all but companions of policies whose annotation says otherwise
)

// Check returns an error for a word that is none of the values.
func (m Ports) Check() error {
	switch m {
	case "", PortsNever, PortsAsked, PortsAlways:
		return nil
	}
	return fmt.Errorf("%q does not say whose companions open ports; write %s, %s or %s", string(m), PortsNever, PortsAsked, PortsAlways)
}

// Annotation of a policy sets the ports that its companions open.
const Annotation = "namegate.io/companion"

// The values of Annotation.
const (
	withPorts = "Ports"
	dnsOnly   = "DNS"
	none      = "None"
)

// unwanted tells whether a policy is to have no companion.
func unwanted(p *v1alpha1.FQDNNetworkPolicy) bool { return p.Annotations[Annotation] == none }

// requested tells whether a policy's companions are to open ports.
func (m Ports) requested(p *v1alpha1.FQDNNetworkPolicy) bool {
	switch value, written := p.Annotations[Annotation]; {
	case value == withPorts:
		return m == PortsAsked || m == PortsAlways
	case !written:
		return m == PortsAlways
	}
	return false
}

// objection returns the event for a policy's annotation, "" for none.
func (m Ports) objection(p *v1alpha1.FQDNNetworkPolicy) (reason, message string) {
	switch value, written := p.Annotations[Annotation]; {
	case !written || value == dnsOnly || value == none:
	case value != withPorts:
		return ReasonInvalid, fmt.Sprintf("the annotation %s is %q, which counts as %s; write %s, %s or %s",
			Annotation, event.Clip(value, 64), dnsOnly, withPorts, dnsOnly, none)
	case m != PortsAsked && m != PortsAlways:
		return ReasonIgnored, fmt.Sprintf("the annotation %s asks for ports, but companions open the endpoint alone here; set the chart's companion.ports=%s, or write %s",
			Annotation, PortsAsked, dnsOnly)
	}
	return "", ""
}
