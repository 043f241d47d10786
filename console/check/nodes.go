package check

import (
	"slices"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// nodes finds policies for nodes that may lock their administrators out.
func (p *ClusterPolicy) nodes() []Finding {
	if p.ours == nil {
		return nil
	}
	spec := &p.ours.Spec
	denies := func(r v1alpha1.ClusterEgressRule) bool { return r.Action == v1alpha1.ActionDeny }
	if spec.Subject.Nodes == nil || spec.Safeguard != nil || spec.Enforcement == v1alpha1.EnforcementAudit || !slices.ContainsFunc(spec.Egress, denies) {
		return nil
	}
	return []Finding{p.finding(Warning, NoSafeguard, "spec", "the policy denies connections of nodes, and of their pods on the host network, until it is changed or deleted, also where that locks "+
		"administrators out; apply it with enforcement: Audit first, then enforce it with safeguard: {confirmWithin: 5m}")}
}
