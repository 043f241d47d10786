package cnp

import (
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

func TestEnforced(t *testing.T) {
	const head, ingress = "tier: Admin, priority: 1, subject: {namespaces: {}}, ", "ingress: [{}], "
	const broken = "egress: [{action: Deny, to: [{domainNames: [a.org]}]}]"
	crowded := policy.Problem{Reason: policy.ReasonNoRoom, Path: "spec.egress[0]", Message: "no room"}
	for _, c := range []struct {
		spec    string
		more    []policy.Problem
		reason  string // "" for all
		message []string
	}{
		{"{" + head + "egress: [{action: Deny, to: [{nodes: {}}]}]}", nil, "", []string{""}},
		{"{" + head + "ingress: [{}, {}]}", nil, "IngressNotEnforced", []string{"spec.ingress: 2 rules are not enforced: Namegate enforces egress alone; write NetworkPolicies for ingress"}},
		{"{" + head + broken + "}", nil, "PartiallyInvalid", []string{"spec.egress[0].to[0].domainNames: domainNames works with Accept alone; write networks, or a ClusterFQDNNetworkPolicy; until then the rule denies every connection"}},
		{"{" + head + ingress + broken + "}", nil, "IngressNotEnforced", []string{"spec.ingress: 1 rule is not enforced", "spec.egress[0].to[0].domainNames: domainNames works"}},
		{"{" + head + "egress: [{action: Deny, to: [{nodes: {}}]}]}", []policy.Problem{crowded}, "PartiallyInvalid", []string{"spec.egress[0]: no room"}},
		{"{" + ingress + "priority: 1}", nil, "NotAccepted", []string{"the condition namegate.io/Accepted says how"}},
	} {
		p := Read(object(t, c.spec))
		all, reason, message := p.Enforced(append(p.Problems, c.more...))
		if all != (c.reason == "") || reason != c.reason {
			t.Errorf("%s: %v %s", c.spec, all, reason)
		}
		for _, text := range c.message {
			diff.Has(t, text, message, c.spec)
		}
	}
}
