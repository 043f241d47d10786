package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// ruleTextsOf returns which rules of the first view are broken, in order.
func ruleTextsOf(s *policy.Snapshot) (out []string) {
	for r := range s.Views[0].Rules.All() {
		text := r.Policy
		if r.Broken {
			text += " broken"
		}
		out = append(out, text)
	}
	return out
}

// TestClusterEntriesRoom: rules whose pods have no room are broken, and no other rule: those of
// the first policies have room before others, and cluster policies before namespaces.
func TestClusterEntriesRoom(t *testing.T) {
	in := besideInput(nil, aNet(t, "np", "{podSelector: {}, egress: [{to: [{podSelector: {matchLabels: {size: few}}}]}]}"))
	for i := range 40 {
		p := aPod(fmt.Sprint("p", i), "x", fmt.Sprintf("10.2.0.%d", i+1))
		p.NodeName, p.Labels = "other", map[string]string{"size": "many"}
		if i < 3 {
			p.Labels["size"] = "few"
		}
		in.Pods = append(in.Pods, p)
	}
	peer := func(name string, priority int, label string) *unstructured.Unstructured {
		return aStandard(t, name, fmt.Sprintf("{tier: Admin, priority: %d, subject: {namespaces: {}}, egress: [{action: Deny, to: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {size: %s}}}}]}]}", priority, label))
	}
	in.ClusterNetworkPolicies = []*unstructured.Unstructured{peer("mistake", 1, "many"), peer("other", 2, "few")}
	c := New()
	steps := []struct {
		entries int
		want    []string
	}{
		{1000, []string{"clusternetworkpolicy:mistake", "clusternetworkpolicy:other", "shop/np"}},
		{20, []string{"clusternetworkpolicy:mistake broken", "clusternetworkpolicy:other", "shop/np"}},
		{0, []string{"clusternetworkpolicy:mistake broken", "clusternetworkpolicy:other broken", "shop/np"}},
		{1000, []string{"clusternetworkpolicy:mistake", "clusternetworkpolicy:other", "shop/np"}},
	}
	for _, step := range steps {
		c.cluster.entries = step.entries
		s := c.Compile(in)
		diff.Error(t, step.want, ruleTextsOf(s), step.entries)
		broken := strings.Count(strings.Join(step.want, " "), "broken")
		if got := problemTexts(s); len(got) != broken || broken > 0 && !strings.HasPrefix(got[0], "clusternetworkpolicy mistake NoRoom spec.egress[0]: this rule has no room on this node and matches nothing as Accept") {
			t.Errorf("%d: %q", step.entries, got)
		}
		for r := range s.Views[0].Rules.All() {
			if (r.Peer.Kind == policy.PeerPods) != (s.PeerSet(r.Peer) != nil) {
				t.Errorf("%d: %s has the set %v", step.entries, r.Policy, s.PeerSet(r.Peer))
			}
		}
		if again := c.Compile(in); again.Views[0] != s.Views[0] {
			t.Errorf("%d: the same input makes another view", step.entries)
		}
	}
	c.cluster.entries = 20
	in.Pods = in.Pods[:len(in.Pods)-30] // room again
	diff.Error(t, steps[0].want, ruleTextsOf(c.Compile(in)))
}

// TestMistakesOfOneAdministrator: 12,000 names, networks that overlap, and a selector of 10,000
// pods change nothing for other policies of any kind, and networks are disjoint.
func TestMistakesOfOneAdministrator(t *testing.T) {
	in := besideInput(nil, aNet(t, "np", "{podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.9.0.0/16}}]}]}"))
	in.Policies = append(in.Policies, aPolicy("open", "", aRule("a.test")))
	for i := range 10000 {
		p := aPod(fmt.Sprint("p", i), "x", fmt.Sprintf("10.%d.%d.7", 3+i/250, i%250))
		p.NodeName = "other"
		in.Pods = append(in.Pods, p)
	}
	in.ClusterPolicies = []*v1alpha1.ClusterFQDNNetworkPolicy{
		aCluster(t, "after", "{tier: Admin, priority: 1000, "+everyPod+", egress: [{action: Deny, matches: [{name: d.test}]}]}"),
		aCluster(t, "default", "{tier: Baseline, priority: 1000, "+everyPod+", egress: [{action: Deny}]}"),
	}
	for i := range 3 {
		p := aCluster(t, fmt.Sprint("names", i), "{tier: Admin, priority: 1, "+everyPod+"}")
		for j := range cfqdnnp.MaxRules {
			rule := v1alpha1.ClusterEgressRule{Action: v1alpha1.ActionPass}
			for k := range cfqdnnp.MaxMatches {
				rule.Matches = append(rule.Matches, v1alpha1.Match{Name: ptr(fmt.Sprintf("n%d-%d-%d.test", i, j, k))})
			}
			for k := range cfqdnnp.MaxNetworks {
				rule.Networks = append(rule.Networks, v1alpha1.Network(fmt.Sprintf("172.16.%d.0/%d", (j+k)%256, 16+k%9)))
			}
			p.Spec.Egress = append(p.Spec.Egress, rule)
		}
		in.ClusterPolicies = append(in.ClusterPolicies, p)
	}
	in.ClusterNetworkPolicies = []*unstructured.Unstructured{
		aStandard(t, "pods", "{tier: Admin, priority: 0, subject: {namespaces: {}}, egress: [{action: Pass, to: [{namespaces: {}}]}]}"),
	}
	s := New().Compile(in)
	if len(s.Problems) > 0 {
		t.Errorf("%v", s.Problems[0])
	}
	v := s.View(addr("10.0.0.1"))
	if v == nil {
		t.Fatal("the pod has no view")
	}
	if slices.ContainsFunc(slices.Collect(v.Rules.All()), func(r *policy.Rule) bool { return r.Broken }) {
		t.Error("rules are broken")
	}
	for name, want := range map[string]string{"a.test": "shop/open", "d.test": "after", "n2-63-63.test": "names2"} {
		if d := v.Decide(policytest.Name(name)); len(d.Matches) != 1 || d.Matches[0].Policy != want {
			t.Errorf("%s: %+v", name, d)
		}
	}
	for _, to := range []struct {
		addr string
		want bool
	}{{"10.9.0.1", true}, {"192.0.2.1", false}} {
		f := policy.Flow{Protocol: policy.TCP, Dialled: netip.AddrPortFrom(addr(to.addr), 443)}
		f.Reached = f.Dialled
		if allowed, _ := policy.Evaluate(v, s, &f); allowed != to.want {
			t.Errorf("%s is allowed: %v", to.addr, allowed)
		}
	}
	for _, set := range s.PeerSets {
		for i := 1; i < len(set.Networks); i++ {
			if set.Networks[i-1].Overlaps(set.Networks[i]) {
				t.Fatalf("%s overlaps %s", set.Networks[i-1], set.Networks[i])
			}
		}
	}
}
