package compile

import (
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// EgressPorts returns the union of the port sets of those rules of a policy that can
// open something, "" if none can. Whether the policy enforces does not matter here.
func EgressPorts(p *v1alpha1.FQDNNetworkPolicy) policy.PortSet {
	return parsePolicy(p, paths{}).egressPorts()
}

func (r *parsed) egressPorts() policy.PortSet {
	var ranges []policy.PortRange
	for i := range r.entries {
		ranges = append(ranges, r.entries[i].Ports.Ranges()...)
	}
	return policy.NewPortSet(ranges...)
}
