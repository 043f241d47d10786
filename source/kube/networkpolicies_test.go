package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestReadNetworkPolicy(t *testing.T) {
	whole := aNetworkPolicy("shop", "db", "db")
	whole.UID, whole.Generation, whole.ResourceVersion = "u1", 3, "17"
	whole.Labels = map[string]string{"team": "a"}
	whole.OwnerReferences = []metav1.OwnerReference{{Kind: "App", Name: "x"}}
	whole.Annotations = map[string]string{lastApplied: "{}"}
	whole.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	want := aNetworkPolicy("shop", "db", "db")
	want.UID, want.Labels, want.OwnerReferences = whole.UID, whole.Labels, whole.OwnerReferences
	e := readNetworkPolicy(whole, nil)
	if diff := cmp.Diff(want, e.policy); diff != "" || !e.pods {
		t.Errorf("leads to pods %v, %s", e.pods, diff)
	}
	if readNetworkPolicy(aNode("x", "192.0.2.1"), nil) != nil {
		t.Error("a node was read as a NetworkPolicy")
	}
}

// TestNetworkPolicyKeepsItsPointer while it is equal, whatever the event.
func TestNetworkPolicyKeepsItsPointer(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*networkingv1.NetworkPolicy)
		same   bool
	}{
		{"nothing", func(*networkingv1.NetworkPolicy) {}, true},
		{"version", func(n *networkingv1.NetworkPolicy) { n.ResourceVersion = "18" }, true},
		{"annotation", func(n *networkingv1.NetworkPolicy) { n.Annotations = map[string]string{"a": "b"} }, true},
		{"nothing that is written as a list", func(n *networkingv1.NetworkPolicy) { n.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{} }, true},
		{"spec", func(n *networkingv1.NetworkPolicy) { n.Spec.PodSelector.MatchLabels = map[string]string{"a": "b"} }, false},
		{"every pod for no pod", func(n *networkingv1.NetworkPolicy) {
			n.Spec.Egress[0].To[0].NamespaceSelector = &metav1.LabelSelector{}
		}, false},
		{"labels", func(n *networkingv1.NetworkPolicy) {
			n.Labels = map[string]string{"app.kubernetes.io/managed-by": "namegate"}
		}, false},
		{"owner", func(n *networkingv1.NetworkPolicy) { n.OwnerReferences = []metav1.OwnerReference{{Kind: "App"}} }, false},
		{"made anew", func(n *networkingv1.NetworkPolicy) { n.UID = "u2" }, false},
	} {
		before := readNetworkPolicy(aNetworkPolicy("shop", "db", "db"), nil)
		after := readNetworkPolicy(with(aNetworkPolicy("shop", "db", "db"), c.change), before)
		if (before.policy == after.policy) != c.same {
			t.Errorf("%s: the pointer was kept: %v", c.name, !c.same)
		}
	}
}

func TestNeedOfRemotePods(t *testing.T) {
	peer := func(p networkingv1.NetworkPolicyPeer) []networkingv1.NetworkPolicyEgressRule {
		return []networkingv1.NetworkPolicyEgressRule{{}, {To: []networkingv1.NetworkPolicyPeer{p}}}
	}
	block := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}
	port := func(p intstr.IntOrString) []networkingv1.NetworkPolicyEgressRule {
		rules := peer(block)
		rules[1].Ports = []networkingv1.NetworkPolicyPort{{}, {Port: &p}}
		return rules
	}
	both := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	for _, c := range []struct {
		name  string
		types []networkingv1.PolicyType
		rules []networkingv1.NetworkPolicyEgressRule
		want  bool
	}{
		{"no rule", both, nil, false},
		{"everywhere", both, []networkingv1.NetworkPolicyEgressRule{{}}, false},
		{"a network", both, peer(block), false},
		{"a number", both, port(intstr.FromInt32(80)), false},
		{"a name", both, port(intstr.FromString("web")), true},
		{"pods", both, peer(networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}), true},
		{"namespaces", both, peer(networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}}), true},
		{"no types, and a rule", nil, peer(networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}), true},
		{"ingress alone", both[:1], peer(networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}), false},
	} {
		spec := networkingv1.NetworkPolicySpec{PolicyTypes: c.types, Egress: c.rules}
		if got := leadsToPods(&spec); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}, Spec: spec}
		if got := readNetworkPolicy(n, nil).pods; got != c.want {
			t.Errorf("%s, read: %v", c.name, got)
		}
		n.Name = "namegate-dns-0123"
		if readNetworkPolicy(n, nil).pods {
			t.Errorf("%s: a companion wants pods to be known", c.name)
		}
	}
}
