package policy

import "github.com/namegate/namegate/crds/v1alpha1"

// EgressPorts returns the union of the port sets of those rules of a policy that can
// open something, "" if none can. Whether the policy enforces does not matter here.
func EgressPorts(p *v1alpha1.FQDNNetworkPolicy) PortSet {
	var ranges []PortRange
	for _, e := range parsePolicy(p, paths{}).entries {
		ranges = append(ranges, e.Ports.Ranges()...)
	}
	return NewPortSet(ranges...)
}
