package cnp

import (
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

func TestEnforced(t *testing.T) {
	const head, ingress = "tier: Admin, priority: 1, subject: {namespaces: {}}, ", "ingress: [{action: Deny, from: [{namespaces: {}}]}], "
	const broken = "egress: [{action: Deny, to: [{domainNames: [a.org]}]}]"
	crowded := policy.Problem{Reason: policy.ReasonNoRoom, Path: "spec.egress[0]", Message: "no room"}
	for _, c := range []struct {
		spec    string
		more    []policy.Problem
		reason  string // "" for all
		message []string
	}{
		{"{" + head + "egress: [{action: Deny, to: [{nodes: {}}]}]}", nil, "", []string{""}},
		{"{" + head + ingress + "}", nil, "", []string{""}},
		{"{" + head + "ingress: [{}]}", nil, "PartiallyInvalid", []string{"spec.ingress[0].from: 0 peers; write 1 to 25; until then the rule denies every connection"}},
		{"{" + head + broken + "}", nil, "PartiallyInvalid", []string{"spec.egress[0].to[0].domainNames: domainNames works with Accept alone; write networks, or a ClusterFQDNNetworkPolicy; until then the rule denies every connection"}},
		{"{" + head + ingress + broken + "}", nil, "PartiallyInvalid", []string{"spec.egress[0].to[0].domainNames: domainNames works"}},
		{"{" + head + "egress: [{action: Deny, to: [{nodes: {}}]}]}", []policy.Problem{crowded}, "PartiallyInvalid", []string{"spec.egress[0]: no room"}},
		{"{" + ingress + "priority: 1}", nil, "NotAccepted", []string{"the condition namegate.io/Accepted says how"}},
	} {
		p := Read(object(t, c.spec))
		all, reason, message := Enforced(append(p.Problems, c.more...))
		if all != (c.reason == "") || reason != c.reason {
			t.Errorf("%s: %v %s", c.spec, all, reason)
		}
		for _, text := range c.message {
			diff.Has(t, text, message, c.spec)
		}
	}
}
