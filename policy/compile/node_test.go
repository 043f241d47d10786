package compile

import (
	"slices"
	"testing"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

// TestANodeIsASubject: policies that select the node by its labels make a view of it, in order, and
// no pod gets their rules. While failsafes are missing the node accepts none, and that is told.
func TestANodeIsASubject(t *testing.T) {
	in := Input{Namespaces: spaces(), Pods: []policy.Pod{aPod("web", "web", "10.0.0.1")}}
	in.ClusterPolicies = []*v1alpha1.ClusterFQDNNetworkPolicy{
		aCluster(t, "last", "{tier: Baseline, priority: 1, subject: {nodes: {}}, egress: [{action: Deny}]}"),
		aCluster(t, "edge", "{tier: Admin, priority: 2, subject: {nodes: {matchLabels: {role: edge}}}, egress: [{action: Accept, matches: [{name: a.test}]}]}"),
		aCluster(t, "first", "{tier: Admin, priority: 1, subject: {nodes: {matchLabels: {role: edge}}}, egress: [{action: Pass, networks: [192.0.2.0/24]}]}"),
		aCluster(t, "other", "{tier: Admin, priority: 1, subject: {nodes: {matchLabels: {role: other}}}, egress: [{action: Deny}]}"),
		aCluster(t, "pods", "{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, networks: [198.51.100.0/24]}]}"),
	}
	in.Node = &policy.Node{Name: "n1", Labels: map[string]string{"role": "edge"}}
	c := New()
	s := c.Compile(in)
	v := s.Node()
	if v == nil || len(s.Views) != 2 || len(s.Problems) != 0 || v.Pod.PodRef != policy.NodeRef("n1") || !v.InForce() {
		t.Fatalf("%+v, %v", v, problemTexts(s))
	}
	want := []string{"Admin first spec.egress[0] Pass 2 192.0.2.0/24 any", "Admin edge spec.egress[0] Accept a.test any", "Baseline last spec.egress[0] Deny 0  any"}
	diff.Error(t, want, orderedTexts(v.Rules))
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
	if got := problemTexts(s); len(got) != 3 || got[0] != "clusterpolicy edge FailsafesUnknown : the node n1 does not accept the policy, which could lock it out: no resolver" {
		t.Errorf("problems %q", got)
	}
	in.Node = known
	if s = c.Compile(in); s.Node() == nil || !s.Node().InForce() || len(s.Problems) != 0 {
		t.Errorf("with failsafes again: %+v, %v", s.Node(), problemTexts(s))
	}
	in.Node = &policy.Node{Name: "n1", Labels: map[string]string{"role": "none"}}
	in.ClusterPolicies = in.ClusterPolicies[1:]
	if s = c.Compile(in); s.Node() != nil {
		t.Errorf("a node that no policy selects has %v", orderedTexts(s.Node().Rules))
	}
	in.Node = nil
	if s = c.Compile(in); s.Node() != nil || len(s.Problems) != 3 {
		t.Errorf("where agents do not enforce policies for nodes: %v", problemTexts(s))
	}
}

// TestTurnedToAudit: a policy whose safeguard ended its enforcement is audited on the node alone;
// the other policies of the node and the policies of pods stay enforced.
func TestTurnedToAudit(t *testing.T) {
	in := Input{Namespaces: spaces(), Pods: []policy.Pod{aPod("web", "web", "10.0.0.1")}, Node: &policy.Node{Name: "n1"}}
	in.ClusterPolicies = []*v1alpha1.ClusterFQDNNetworkPolicy{
		aCluster(t, "held", "{tier: Admin, priority: 1, subject: {nodes: {}}, egress: [{action: Deny, matches: [{name: a.test}]}], dns: {unmatched: Refuse}}"),
		aCluster(t, "kept", "{tier: Admin, priority: 2, subject: {nodes: {}}, egress: [{action: Deny, matches: [{name: a.test}, {name: b.test}]}], dns: {unmatched: NXDomain, denied: Resolve}}"),
		aCluster(t, "noted", "{tier: Baseline, priority: 1, subject: {nodes: {}}, egress: [{action: Deny}], enforcement: Audit}"),
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
	diff.Error(t, []string{"held", "noted"}, audited)
	if v := s.Node(); !v.InForce() || v.AdminUnmatched != policy.NXDomain || before.Node().AdminUnmatched != policy.Refuse {
		t.Errorf("settings %v, before %v", v.AdminUnmatched, before.Node().AdminUnmatched)
	}
	if opened, denied := s.Node().ExactNames(); len(opened) != 0 || len(denied) != 2 {
		t.Errorf("exact names %v %v", opened, denied)
	}
	diff.Equal(t, before.Views[1], s.Views[1], "the view of the pod")
	want := []policy.Problem{{Object: "clusterpolicy held", Reason: policy.ReasonTurnedToAudit, Pod: policy.NodeRef("n1"), Policies: []string{"held"},
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
	in := Input{Namespaces: spaces(), Node: &policy.Node{Name: "n1"}}
	in.ClusterPolicies = []*v1alpha1.ClusterFQDNNetworkPolicy{
		aCluster(t, "new", "{tier: Admin, priority: 1, subject: {nodes: {}}, egress: [{action: Deny, matches: [{name: a.test}]}, {action: Accept, networks: [192.0.2.0/24]}]}"),
		aCluster(t, "old", "{tier: Admin, priority: 2, subject: {nodes: {}}, egress: [{action: Deny, networks: [192.0.2.0/24]}]}"),
		aCluster(t, "last", "{tier: Baseline, priority: 1, subject: {nodes: {}}, egress: [{action: Deny}]}"),
	}
	c := New()
	wants := func(when string, want ...string) *policy.View {
		t.Helper()
		v := c.Compile(in).Node()
		diff.Equal(t, v, c.Compile(in).Node(), when, "the view of an unchanged node")
		switch {
		case want == nil && v.Confirmed != nil:
			t.Errorf("%s: %v remain", when, orderedTexts(policy.Rules{Admin: v.Confirmed.Local.Egress}))
		case want != nil && v.Confirmed == nil:
			t.Errorf("%s: nothing waits", when)
		case want != nil:
			diff.Error(t, want, orderedTexts(policy.Rules{Admin: v.Confirmed.Local.Egress}), when)
		}
		return v
	}
	wants("confirmed")
	in.Unconfirmed = map[string]bool{"new": true, "absent": true}
	v := wants("one waits", "Admin old spec.egress[0] Deny 2 192.0.2.0/24 any", "Baseline last spec.egress[0] Deny 0  any")
	if len(v.Rules.Admin) != 3 {
		t.Errorf("enforced meanwhile: %v", orderedTexts(v.Rules))
	}
	in.Unconfirmed["last"] = true
	wants("another waits", "Admin old spec.egress[0] Deny 2 192.0.2.0/24 any")
	in.TurnedToAudit = map[string]string{"last": "it was not confirmed", "new": "it was not confirmed"}
	wants("turned")
}
