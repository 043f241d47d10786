package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/peers"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

var (
	aNode = policytest.NodePolicy
	eth0  = []string{"eth0"}
)

// confirmed are the rules that do not wait for a confirmation.
func confirmed(v *policy.View) []string {
	return orderedTexts(policy.Rules{Admin: slices.Collect(v.Confirmed.All())})
}

// TestANodeIsASubject: policies that select the node by its labels make a view of it, in order, and
// no pod gets their rules. While failsafes are missing the node accepts none, and that is told.
func TestANodeIsASubject(t *testing.T) {
	in := Input{Namespaces: spaces(), Pods: []policy.Pod{aPod("web", "web", "10.0.0.1")}}
	in.NodePolicies = []*v1alpha1.NodeNetworkPolicy{
		aNode(t, "last", "{nodeSelector: {}, priority: 3, egress: [{action: Deny}]}"),
		aNode(t, "edge", "{nodeSelector: {matchLabels: {role: edge}}, priority: 2, egress: [{action: Accept, matches: [{name: a.test}]}]}"),
		aNode(t, "first", "{nodeSelector: {matchLabels: {role: edge}}, priority: 1, egress: [{action: Accept, networks: [192.0.2.0/24]}]}"),
		aNode(t, "other", "{nodeSelector: {matchLabels: {role: other}}, priority: 1, egress: [{action: Deny}]}"),
	}
	in.ClusterPolicies = []*v1alpha1.ClusterFQDNNetworkPolicy{
		aCluster(t, "pods", "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, networks: [198.51.100.0/24]}]}"),
	}
	in.Node = &policy.Node{Name: "n1", Labels: map[string]string{"role": "edge"}, Interfaces: eth0}
	c := New()
	s := c.Compile(in)
	v := s.Node()
	if v == nil || len(s.Views) != 2 || len(s.Problems) != 0 || v.Pod.PodRef != policy.NodeRef("n1") || !v.InForce() {
		t.Fatalf("%+v, %v", v, problemTexts(s))
	}
	want := []string{"Admin nodenetworkpolicy:first spec.egress[0] Accept 2 192.0.2.0/24 any", "Admin nodenetworkpolicy:edge spec.egress[0] Accept a.test any", "Admin nodenetworkpolicy:last spec.egress[0] Deny 0  any"}
	diff.Error(t, want, orderedTexts(v.Rules))
	diff.Error(t, want, orderedTexts(policy.Rules{Admin: v.Traffic.Local.Egress}))
	if got := orderedTexts(s.Views[1].Rules); len(got) != 1 {
		t.Errorf("the pod has %q", got)
	}
	if again := c.Compile(in); again.Node() != v {
		t.Error("an unchanged node has another view")
	}
	missing, known := *in.Node, in.Node
	missing.Missing = "no resolver"
	in.Node = &missing
	s = c.Compile(in)
	if s.Node() != nil || len(s.Views) != 1 {
		t.Errorf("without failsafes: %+v", s.Node())
	}
	if got := problemTexts(s); len(got) != 3 || got[0] != "nodenetworkpolicy edge FailsafesUnknown : the node n1 does not accept the policy, which could lock it out: no resolver" {
		t.Errorf("problems %q", got)
	}
	in.Node = known
	if s = c.Compile(in); s.Node() == nil || !s.Node().InForce() || len(s.Problems) != 0 {
		t.Errorf("with failsafes again: %+v, %v", s.Node(), problemTexts(s))
	}
	in.Node = &policy.Node{Name: "n1", Labels: map[string]string{"role": "none"}, Interfaces: eth0}
	in.NodePolicies = in.NodePolicies[1:]
	if s = c.Compile(in); s.Node() != nil {
		t.Errorf("a node that no policy selects has %v", orderedTexts(s.Node().Rules))
	}
	in.Node = nil
	s = c.Compile(in)
	const wantProblem = "nodenetworkpolicy edge NotEnabled : the agents do not enforce policies for nodes; install the chart with nodes.enabled=true"
	if got := problemTexts(s); s.Node() != nil || len(got) != 3 || got[0] != wantProblem || got[2] != strings.ReplaceAll(wantProblem, "edge", "other")+", which leaves open what these rules close: spec.egress[0] (Deny)" {
		t.Errorf("where agents do not enforce policies for nodes: %q", got)
	}
}

// TestTurnedToAudit: a policy whose safeguard ended its enforcement is audited on the node alone;
// the other policies of the node and the policies of pods stay enforced.
func TestTurnedToAudit(t *testing.T) {
	in := Input{Namespaces: spaces(), Pods: []policy.Pod{aPod("web", "web", "10.0.0.1")}, Node: &policy.Node{Name: "n1", Interfaces: eth0}}
	in.NodePolicies = []*v1alpha1.NodeNetworkPolicy{
		aNode(t, "held", "{nodeSelector: {}, priority: 1, egress: [{action: Deny, matches: [{name: a.test}]}], dns: {unmatched: Refuse}}"),
		aNode(t, "kept", "{nodeSelector: {}, priority: 2, egress: [{action: Deny, matches: [{name: a.test}, {name: b.test}]}], dns: {unmatched: NXDomain, denied: Resolve}}"),
		aNode(t, "noted", "{nodeSelector: {}, priority: 3, egress: [{action: Deny}], enforcement: Audit}"),
	}
	in.ClusterPolicies = []*v1alpha1.ClusterFQDNNetworkPolicy{
		aCluster(t, "pods", "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, matches: [{name: c.test}]}]}"),
	}
	c := New()
	before := c.Compile(in)
	in.TurnedToAudit = map[string]string{"held": "it was not confirmed", "noted": "no", "pods": "no", "absent": "no"}
	s := c.Compile(in)
	var audited []string
	for r := range s.Node().Rules.All() {
		if r.Audit {
			audited = append(audited, r.Policy)
		}
		for _, m := range r.Matches {
			if m.Audit != r.Audit || m.Rule.Audit != r.Audit {
				t.Errorf("%s: match %v of another rule", r.Policy, m.Pattern)
			}
		}
	}
	diff.Error(t, []string{"nodenetworkpolicy:held", "nodenetworkpolicy:noted"}, audited)
	if v := s.Node(); !v.InForce() || v.AdminUnmatched != policy.NXDomain || before.Node().AdminUnmatched != policy.Refuse {
		t.Errorf("settings %v, before %v", v.AdminUnmatched, before.Node().AdminUnmatched)
	}
	if opened, denied := s.Node().ExactNames(); len(opened) != 0 || len(denied) != 2 {
		t.Errorf("exact names %v %v", opened, denied)
	}
	diff.Equal(t, before.Views[1], s.Views[1], "the view of the pod")
	want := []policy.Problem{{Object: "nodenetworkpolicy held", Reason: policy.ReasonTurnedToAudit, Pod: policy.NodeRef("n1"), Policies: []string{"nodenetworkpolicy:held"},
		Message: "the node n1 only audits the policy: it was not confirmed"}}
	diff.Error(t, want, s.Problems)
	if again := c.Compile(in); again.Node() != s.Node() {
		t.Error("an unchanged node has another view")
	}
	in.TurnedToAudit = nil
	if s = c.Compile(in); !slices.Equal(orderedTexts(s.Node().Rules), orderedTexts(before.Node().Rules)) || s.Node().AdminUnmatched != policy.Refuse || len(s.Problems) != 0 {
		t.Errorf("enforced again: %v %v", s.Node().AdminUnmatched, problemTexts(s))
	}
}

// TestUnconfirmed: the rules that remain of the node's view are those of the policies that do not
// wait for confirmation. Policies that are only audited do not wait.
func TestUnconfirmed(t *testing.T) {
	in := Input{Namespaces: spaces(), Node: &policy.Node{Name: "n1", Interfaces: eth0}}
	in.NodePolicies = []*v1alpha1.NodeNetworkPolicy{
		aNode(t, "new", "{nodeSelector: {}, priority: 1, egress: [{action: Deny, matches: [{name: a.test}]}, {action: Accept, networks: [192.0.2.0/24]}]}"),
		aNode(t, "old", "{nodeSelector: {}, priority: 2, egress: [{action: Deny, networks: [192.0.2.0/24]}]}"),
		aNode(t, "last", "{nodeSelector: {}, priority: 3, egress: [{action: Deny}]}"),
	}
	c := New()
	wants := func(when string, want ...string) *policy.View {
		t.Helper()
		v := c.Compile(in).Node()
		diff.Equal(t, v, c.Compile(in).Node(), when, "the view of an unchanged node")
		switch {
		case want == nil && v.Confirmed != nil:
			t.Errorf("%s: %v remain", when, confirmed(v))
		case want != nil && v.Confirmed == nil:
			t.Errorf("%s: nothing waits", when)
		case want != nil:
			diff.Error(t, want, confirmed(v), when)
		}
		return v
	}
	wants("confirmed")
	in.Unconfirmed = map[string]bool{"new": true, "absent": true}
	v := wants("one waits", "Admin nodenetworkpolicy:old spec.egress[0] Deny 2 192.0.2.0/24 any", "Admin nodenetworkpolicy:last spec.egress[0] Deny 0  any")
	if len(v.Rules.Admin) != 4 {
		t.Errorf("enforced meanwhile: %v", orderedTexts(v.Rules))
	}
	in.Unconfirmed["last"] = true
	wants("another waits", "Admin nodenetworkpolicy:old spec.egress[0] Deny 2 192.0.2.0/24 any")
	in.TurnedToAudit = map[string]string{"last": "it was not confirmed", "new": "it was not confirmed"}
	wants("turned")
}

// TestTrafficOfANode: rules are in the lists of their traffic and direction, in order, and names are decided by
// those for egress of Local alone. No NetworkPolicy counts for a pod because of them. A node without interfaces
// accepts the policies that name some.
func TestTrafficOfANode(t *testing.T) {
	in := Input{Namespaces: spaces(), Pods: []policy.Pod{aPod("web", "web", "10.0.0.1")}, Nodes: []*policy.Pod{peers.Node("n2", nil, []netip.Addr{netip.MustParseAddr("192.0.2.2")})},
		NetworkPolicies: []*networkingv1.NetworkPolicy{aNet(t, "in", "{podSelector: {}, policyTypes: [Ingress]}")}}
	in.NodePolicies = []*v1alpha1.NodeNetworkPolicy{
		aNode(t, "b", "{nodeSelector: {}, priority: 2, ingress: [{action: Deny}], egress: [{action: Accept, matches: [{name: a.test}], pods: {namespaceSelector: {}, podSelector: {}}}], dns: {unmatched: Refuse}}"),
		aNode(t, "a", "{nodeSelector: {}, priority: 2, interfaces: [eth1, 'eth*', eth1], ingress: [{action: Accept, nodes: {}}]}"),
		aNode(t, "f", "{nodeSelector: {}, priority: 1, traffic: Forwarded, egress: [{action: Deny}], ingress: [{action: Accept}], dns: {unmatched: NXDomain}, enforcement: Audit}"),
		aNode(t, "n", "{nodeSelector: {}, priority: 1, traffic: BeforeNAT, ingress: [{action: Deny}]}"),
		aNode(t, "u", "{nodeSelector: {}, priority: 1, traffic: Untracked, interfaces: ['*'], egress: [{action: Accept}], dns: {unmatched: NXDomain}}"),
	}
	in.Node = &policy.Node{Name: "n1", Interfaces: eth0}
	c := New()
	lists := func(want ...string) *policy.Snapshot {
		t.Helper()
		s := c.Compile(in)
		var got []string
		for traffic := policy.Local; traffic <= policy.Untracked; traffic++ {
			of := s.Node().Traffic.Of(traffic)
			for _, r := range slices.Concat(of.Ingress, of.Egress) {
				got = append(got, fmt.Sprintf("%v %v %s %v", traffic, r.Interfaces, strings.TrimPrefix(r.Policy, "nodenetworkpolicy:"), r.Path))
				if r.Traffic != traffic || r.Ingress != slices.Contains(of.Ingress, r) {
					t.Errorf("%+v", r)
				}
			}
		}
		diff.Error(t, want, got)
		return s
	}
	s := lists("Local [eth* eth1] a spec.ingress[0]", "Local [] b spec.ingress[0]", "Local [] b spec.egress[0]", "Local [] b spec.egress[0]",
		"Forwarded [] f spec.ingress[0]", "Forwarded [] f spec.egress[0]", "BeforeNAT [] n spec.ingress[0]", "Untracked [*] u spec.egress[0]")
	if v := s.Node(); len(s.Views) != 1 || len(s.Problems) != 0 || v.AdminUnmatched != policy.Refuse || len(v.Rules.Admin) != 2 || len(s.PeerSets) != 2 {
		t.Errorf("%d views, %q, %v, %d peer sets", len(s.Views), problemTexts(s), orderedTexts(v.Rules), len(s.PeerSets))
	}
	diff.Error(t, []string{"nodenetworkpolicy:b", "nodenetworkpolicy:a", "nodenetworkpolicy:f", "nodenetworkpolicy:n", "nodenetworkpolicy:u"}, s.Node().ClusterPolicies())
	in.Node = &policy.Node{Name: "n1"}
	s = lists("Local [eth* eth1] a spec.ingress[0]", "Untracked [*] u spec.egress[0]")
	if got := problemTexts(s); len(got) != 3 || !strings.HasPrefix(got[0], "nodenetworkpolicy b InterfacesUnknown : the node n1 does not accept the policy: ") || !strings.HasSuffix(got[0], "; write interfaces") {
		t.Errorf("%q", got)
	}
	in.NodePolicies = in.NodePolicies[:1]
	if s = c.Compile(in); s.Node() != nil || len(s.Problems) != 1 {
		t.Errorf("%+v %q", s.Node(), problemTexts(s))
	}
}
