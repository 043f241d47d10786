package status

import (
	"fmt"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// CompanionPorts says whose companions open the ports of their policies' rules
// beside the endpoint.
type CompanionPorts string

// The values of CompanionPorts; the zero value is PortsNever.
const (
	PortsNever  CompanionPorts = "Never"
	PortsAsked  CompanionPorts = "Asked"  // those of policies with the annotation
	PortsAlways CompanionPorts = "Always" // all but those of policies whose annotation says otherwise
)

// Check returns an error for a word that is none of the values.
func (c CompanionPorts) Check() error {
	switch c {
	case "", PortsNever, PortsAsked, PortsAlways:
		return nil
	}
	return fmt.Errorf("%q does not say whose companions open ports; write %s, %s or %s", string(c), PortsNever, PortsAsked, PortsAlways)
}

// CompanionAnnotation of a policy says what its companions open.
const CompanionAnnotation = "namegate.io/companion"

// The values of CompanionAnnotation.
const (
	companionWithPorts = "Ports"
	companionDNS       = "DNS"
	companionNone      = "None"
)

// The reasons of events about CompanionAnnotation.
const (
	// ReasonCompanionInvalid: the annotation has a value that does not exist.
	ReasonCompanionInvalid = "CompanionInvalid"
	// ReasonCompanionIgnored: the annotation asks for ports where nobody gets them.
	ReasonCompanionIgnored = "CompanionIgnored"
)

// wantsNone tells whether a policy is to have no companion.
func wantsNone(p *v1alpha1.FQDNNetworkPolicy) bool {
	return p.Annotations[CompanionAnnotation] == companionNone
}

// wantsPorts tells whether a policy's companions are to open ports.
func (c CompanionPorts) wantsPorts(p *v1alpha1.FQDNNetworkPolicy) bool {
	switch value, written := p.Annotations[CompanionAnnotation]; {
	case value == companionWithPorts:
		return c == PortsAsked || c == PortsAlways
	case !written:
		return c == PortsAlways
	}
	return false
}

// objection returns the event that the annotation of a policy is worth, "" for none.
func (c CompanionPorts) objection(p *v1alpha1.FQDNNetworkPolicy) (reason, message string) {
	switch value, written := p.Annotations[CompanionAnnotation]; {
	case !written || value == companionDNS || value == companionNone:
	case value != companionWithPorts:
		return ReasonCompanionInvalid, fmt.Sprintf("the annotation %s is %q, which counts as %s; write %s, %s or %s",
			CompanionAnnotation, clip(value, 64), companionDNS, companionWithPorts, companionDNS, companionNone)
	case c != PortsAsked && c != PortsAlways:
		return ReasonCompanionIgnored, fmt.Sprintf("the annotation %s asks for ports, but companions open the endpoint alone here; set the chart's companion.ports=%s, or write %s",
			CompanionAnnotation, PortsAsked, companionDNS)
	}
	return "", ""
}
