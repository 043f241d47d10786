package status

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fqdnnp"
	"github.com/namegate/namegate/testkit/diff"
)

func TestConditionsOf(t *testing.T) {
	audit := aPolicy("shop", "web")
	audit.Spec.Enforcement = v1alpha1.EnforcementAudit
	partly := aPolicy("shop", "web")
	partly.Spec.Egress = append(partly.Spec.Egress, v1alpha1.EgressRule{})
	for name, c := range map[string]struct {
		policy                       *v1alpha1.FQDNNetworkPolicy
		entries                      []entry
		accepted, enforced, blockedS string
	}{
		"all is well": {aPolicy("shop", "web"), nil, "True Accepted", "True NoBlindSpot", "False Reachable"},
		"invalid":     {aBroken("shop", "web"), nil, "False Invalid", "False NotAccepted", "False Reachable"},
		"partly":      {partly, nil, "True PartiallyInvalid", "True NoBlindSpot", "False Reachable"},
		"audit":       {audit, nil, "True Accepted", "False Audit", "False Reachable"},
		"audit that is not seen": {
			audit, []entry{{Reason: NotSeen, Message: "m", Count: 1}}, "True Accepted", "False NotSeen", "False Reachable",
		},
		"DNS alone":          {aPolicy("shop", "web"), []entry{{Reason: DNSBlocked, Message: "m", Count: 1}}, "True Accepted", "True NoBlindSpot", "True DNSBlocked"},
		"DNS past the agent": {aPolicy("shop", "web"), []entry{{Reason: SocketLB, Message: "m", Count: 1}}, "True Accepted", "True NoBlindSpot", "True SocketLB"},
		"both": {
			aPolicy("shop", "web"), []entry{{Reason: SocketLB, Message: "m", Count: 1}, {Reason: DNSBlocked, Message: "m", Count: 1}},
			"True Accepted", "True NoBlindSpot", "True DNSBlocked",
		},
		"the worst is the reason": {
			aPolicy("shop", "web"), []entry{{Reason: Homeless, Message: "h"}, {Reason: NotSeen, Message: "n"}, {Reason: HostNetwork, Message: "o"}},
			"True Accepted", "False NotSeen", "False Reachable",
		},
		"beside NetworkPolicies":    {aPolicy("shop", "web"), []entry{{Reason: ReasonBesideNetworkPolicies, Message: "m"}}, "True Accepted", "True BesideNetworkPolicies", "False Reachable"},
		"in a flow table":           {aPolicy("shop", "web"), []entry{{Reason: Offloaded, Message: "m"}}, "True Accepted", "True Offloaded", "False Reachable"},
		"beside them, and unseen":   {aPolicy("shop", "web"), []entry{{Reason: ReasonBesideNetworkPolicies, Message: "m"}, {Reason: NotSeen, Message: "m"}}, "True Accepted", "False NotSeen", "False Reachable"},
		"a reason of a later agent": {aPolicy("shop", "web"), []entry{{Reason: "Unheard", Message: "m"}}, "True Accepted", "True NoBlindSpot", "False Reachable"},
		"without a message":         {aPolicy("shop", "web"), []entry{{Reason: IPVS}}, "True Accepted", "False IPVS", "False Reachable"},
	} {
		t.Run(name, func(t *testing.T) {
			c.policy.Generation = 7
			c.policy.Status.Conditions = conditionsOf(c.policy, fqdnnp.Validate(c.policy), c.entries, "")
			for kind, want := range map[string]string{policy.ConditionAccepted: c.accepted, ConditionEnforced: c.enforced, ConditionDNSBlocked: c.blockedS} {
				diff.Equal(t, want, says(c.policy, kind), kind)
				if is := meta.FindStatusCondition(c.policy.Status.Conditions, kind); is.ObservedGeneration != 7 || is.Message == "" {
					t.Errorf("%+v", is)
				}
			}
		})
	}
}

// TestEveryBlindSpotIsReported: a reason that is in the list of findings and not of
// blind spots would be in no condition.
func TestEveryBlindSpotIsReported(t *testing.T) {
	for _, reason := range []string{NotSeen, IPVS, BridgeNotFiltered, HostNetwork, SecondInterface, Homeless, TurnedToAudit, FailsafesUnknown} {
		if c := enforcedOf(v1alpha1.EnforcementEnforce, true, []entry{{Reason: reason, Message: "why"}}); c.Reason != reason || c.Message != "why" {
			t.Errorf("%+v", c)
		}
	}
}

// TestTellEntries: the text does not depend on the order in which nodes are read.
func TestTellEntries(t *testing.T) {
	a := entry{Reason: NotSeen, Message: "of a", Pods: []string{"shop/a", "shop/c"}, Count: 12}
	b := entry{Reason: NotSeen, Message: "of b", Pods: []string{"shop/b"}, Count: 1}
	other := entry{Reason: IPVS, Message: "of another", Pods: []string{"shop/z"}, Count: 1}
	want := "13 pods: shop/a, shop/b, shop/c and 10 more; of one of them: of a"
	for _, entries := range [][]entry{{a, b, other}, {other, b, a}} {
		diff.Equal(t, want, tellEntries(entries, NotSeen))
	}
	diff.Equal(t, "of b", tellEntries([]entry{b}, NotSeen), "one pod")
	diff.Equal(t, "", tellEntries([]entry{a}, Homeless), "of another reason")
	nodes := []entry{{Reason: TurnedToAudit, Message: "of n2", Pods: []string{"node n2"}, Count: 1}, {Reason: TurnedToAudit, Message: "of n1", Pods: []string{"node n1"}, Count: 1}}
	diff.Equal(t, "2 nodes: n1, n2; of one of them: of n1", tellEntries(nodes, TurnedToAudit), "of nodes")
	var many []entry
	for range 50 {
		many = append(many, a)
	}
	if got := tellEntries(many, NotSeen); strings.Count(got, "shop/") != 8 {
		t.Error(got)
	}
}
