package compile

import (
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/peers"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// aStandard reads the spec of a ClusterNetworkPolicy.
func aStandard(t testing.TB, name, spec string) *unstructured.Unstructured {
	t.Helper()
	p := &unstructured.Unstructured{}
	fatal.If(t, yaml.Unmarshal([]byte(spec), &p.Object))
	p.Object = map[string]any{"spec": p.Object}
	p.SetName(name)
	return p
}

// TestClusterNetworkPolicies stand in one order with ours, which come first among equals.
func TestClusterNetworkPolicies(t *testing.T) {
	const head = "tier: Admin, priority: 5, subject: {namespaces: {}}, egress: "
	in := Input{
		Namespaces: map[string]map[string]string{"shop": {}},
		Pods:       []policy.Pod{{PodRef: policy.PodRef{Namespace: "shop", Name: "web"}, IPs: []netip.Addr{addr("10.1.0.1")}}},
		Nodes:      []*policy.Pod{peers.Node("n", nil, []netip.Addr{addr("192.0.2.1")})},
		ClusterPolicies: []*v1alpha1.ClusterFQDNNetworkPolicy{
			aCluster(t, "z", "{"+head+"[{action: Deny, matches: [{name: a.test}]}]}"),
		},
		ClusterNetworkPolicies: []*unstructured.Unstructured{
			aStandard(t, "z", "{"+head+"[{action: Accept, to: [{nodes: {}}, {domainNames: ['*.a.test']}]}, {action: Pass, to: [{namespaces: {}}]}]}"),
			aStandard(t, "a", "{"+head+"[{action: Deny, to: [{}]}]}"),
			aStandard(t, "a", "{"+head+"[{action: Accept, to: [{nodes: {}}]}]}"),
		},
	}
	c := New()
	s := c.Compile(in)
	want := []string{
		"Admin z spec.egress[0] Deny a.test any",
		"Admin clusternetworkpolicy:a spec.egress[0] Deny broken 0  any",
		"Admin clusternetworkpolicy:z spec.egress[0] Accept **.a.test any",
		"Admin clusternetworkpolicy:z spec.egress[0] Accept 1 nodes: * any",
		"Admin clusternetworkpolicy:z spec.egress[1] Pass 1 *: * any",
	}
	diff.Error(t, want, orderedTexts(s.Views[0].Rules))
	if len(s.Problems) != 2 || s.Problems[1].Object != "clusternetworkpolicy a" || s.Problems[1].Message != "the policy is given twice; the first one counts, remove or rename the other" {
		t.Errorf("%+v", s.Problems)
	}
	if set := s.PeerSet(policy.Peer{Kind: policy.PeerPods, Key: "nodes: *"}); !set.Contains(addr("192.0.2.1"), policy.TCP, 1) || set.Contains(addr("10.1.0.1"), policy.TCP, 1) {
		t.Errorf("%+v", set)
	}
	was := s.Views[0]
	again := in
	again.ClusterNetworkPolicies = []*unstructured.Unstructured{in.ClusterNetworkPolicies[0].DeepCopy(), in.ClusterNetworkPolicies[1]}
	if s = c.Compile(again); s.Views[0] != was {
		t.Error("a copy is a change")
	}
	again.ClusterNetworkPolicies = again.ClusterNetworkPolicies[:1]
	diff.Error(t, append(want[:1:1], want[2:]...), orderedTexts(c.Compile(again).Views[0].Rules))
}

// TestUnknownPeers: while pods of other nodes are not known, rules that deny pods or pass
// them on are broken, and no other rule.
func TestUnknownPeers(t *testing.T) {
	in := Input{
		Namespaces:   map[string]map[string]string{"shop": {}},
		Pods:         []policy.Pod{{PodRef: policy.PodRef{Namespace: "shop", Name: "web"}, IPs: []netip.Addr{addr("10.1.0.1")}}},
		PeersUnknown: true,
		ClusterNetworkPolicies: []*unstructured.Unstructured{aStandard(t, "a", `{tier: Admin, priority: 5, subject: {namespaces: {}}, egress: [
			{action: Accept, to: [{namespaces: {}}]}, {action: Pass, to: [{nodes: {}}, {namespaces: {}}]},
			{action: Deny, to: [{pods: {namespaceSelector: {}, podSelector: {}}}], protocols: [{destinationNamedPort: web}]},
			{action: Deny, to: [{nodes: {}}]}, {action: Deny, to: [{networks: [192.0.2.0/24]}]}]}`)},
	}
	const a = "Admin clusternetworkpolicy:a spec.egress"
	known := []string{a + "[0] Accept 1 *: * any", a + "[1] Pass 1 *: *; nodes: * any", a + "[2] Deny 3 web/tcp,web/udp,web/sctp of *: * any", a + "[3] Deny 1 nodes: * any", a + "[4] Deny 2 192.0.2.0/24 any"}
	unknown := []string{known[0], a + "[1] Pass broken 0  any", a + "[2] Deny broken 0  any", known[3], known[4]}
	c := New()
	for _, want := range [][]string{unknown, known, unknown} {
		diff.Error(t, want, orderedTexts(c.Compile(in).Views[0].Rules), "unknown", in.PeersUnknown)
		in.PeersUnknown = !in.PeersUnknown
	}
}
