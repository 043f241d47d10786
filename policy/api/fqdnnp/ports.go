package fqdnnp

import (
	"fmt"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fields"
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
		ranges = append(ranges, fields.Report(r.partly).Port(fmt.Sprintf("%s[%d]", path, i), &ports[i])...)
	}
	return policy.NewPortSet(ranges...)
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
