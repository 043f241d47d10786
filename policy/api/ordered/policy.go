package ordered

import (
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/peers"
)

// Policy is one cluster policy as it was read. It is immutable.
type Policy struct {
	ID       string // no other cluster policy of any kind has it
	Object   string // the name by which problems name it
	Standard bool   // a ClusterNetworkPolicy
	Tier     policy.Tier
	Priority int32
	// Namespaces selects by the labels of pods' namespaces, Pods by their own. Both are nil
	// for a policy that selects nothing.
	Namespaces, Pods *peers.Selector
	// Nodes selects nodes by their labels, in place of Namespaces and Pods.
	Nodes     *peers.Selector
	Audit     bool
	Denied    policy.Denied
	DNSDenied policy.Unmatched
	Unmatched policy.Unmatched
	Limits    policy.DNSLimits
	Rules     []Rule // in order
	Problems  []policy.Problem
}

// Rule is one egress rule, for one kind of its destinations.
type Rule struct {
	*policy.Rule
	Spec *peers.Spec // of a rule with peers, else nil
}

// Place returns the place of the policy in the order of evaluation.
func (p *Policy) Place() policy.ClusterPolicy {
	return policy.ClusterPolicy{Tier: p.Tier, Priority: p.Priority, Standard: p.Standard, Name: p.ID}
}

// Invalidate makes a policy with a problem of ReasonInvalid select nothing.
func (p *Policy) Invalidate() {
	rules := make([]*policy.Rule, len(p.Rules))
	for i, r := range p.Rules {
		rules[i] = r.Rule
	}
	if policy.Invalidate(p.Problems, rules...) {
		p.Namespaces, p.Pods, p.Nodes = nil, nil, nil
	}
}

// Selects tells whether the policy selects a pod, by the labels of its namespace and by its own.
func (p *Policy) Selects(namespace, pod map[string]string) bool {
	return p.Pods != nil && p.Namespaces.Matches(namespace) && p.Pods.Matches(pod)
}
