package policy

import "github.com/namegate/namegate/crds/v1alpha1"

// EgressPorts returns the union of the port sets of those rules of a policy that can
// open something, "" if none can. Whether the policy enforces does not matter here.
func EgressPorts(p *v1alpha1.FQDNNetworkPolicy) PortSet {
	return parsePolicy(p, paths{}).egressPorts()
}

func (r *parsed) egressPorts() PortSet {
	var ranges []PortRange
	for i := range r.entries {
		ranges = append(ranges, r.entries[i].Ports.Ranges()...)
	}
	return NewPortSet(ranges...)
}
