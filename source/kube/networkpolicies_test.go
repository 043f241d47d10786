package kube

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
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
	want.UID, want.Labels = whole.UID, whole.Labels
	e := readNetworkPolicy(whole, nil)
	if diff := cmp.Diff(want, e.policy); diff != "" || !e.to.own {
		t.Errorf("leads to %v, %s", e.to, diff)
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
			n.Labels = map[string]string{"namegate.io/ignore": "true"}
		}, false},
		{"owner", func(n *networkingv1.NetworkPolicy) { n.OwnerReferences = []metav1.OwnerReference{{Kind: "App"}} }, true},
		{"made anew", func(n *networkingv1.NetworkPolicy) { n.UID = "u2" }, false},
	} {
		before := readNetworkPolicy(aNetworkPolicy("shop", "db", "db"), nil)
		after := readNetworkPolicy(with(aNetworkPolicy("shop", "db", "db"), c.change), before)
		if (before.policy == after.policy) != c.same {
			t.Errorf("%s: the pointer was kept: %v", c.name, !c.same)
		}
	}
}

// TestSpacesOfNetworkPolicies: the namespaces whose pods have to be known.
func TestSpacesOfNetworkPolicies(t *testing.T) {
	namespaces := map[string]map[string]string{"shop": {"tier": "front"}, "bank": {"tier": "back"}, "pay": {"tier": "back"}, "dev": nil}
	rule := func(p ...networkingv1.NetworkPolicyPeer) []networkingv1.NetworkPolicyEgressRule {
		return []networkingv1.NetworkPolicyEgressRule{{}, {To: p}}
	}
	block := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}
	pods := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}
	of := func(tier string) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}, PodSelector: pods.PodSelector}
	}
	unreadable := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Like"}}}}
	port := func(p intstr.IntOrString, to ...networkingv1.NetworkPolicyPeer) []networkingv1.NetworkPolicyEgressRule {
		rules := rule(to...)
		rules[1].Ports = []networkingv1.NetworkPolicyPort{{}, {Port: &p}}
		return rules
	}
	both := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	for _, c := range []struct {
		name  string
		types []networkingv1.PolicyType
		rules []networkingv1.NetworkPolicyEgressRule
		want  string
		from  string // if the rules are for ingress, and the types the other ones
	}{
		{"no rule", both, nil, "", ""},
		{"everywhere", both, []networkingv1.NetworkPolicyEgressRule{{}}, "", ""},
		{"a network", both, rule(block), "", ""},
		{"a number", both, port(intstr.FromInt32(80)), "", ""},
		{"a name anywhere", both, port(intstr.FromString("web")), "*", ""},
		{"a name in a network", both, port(intstr.FromString("web"), block), "*", ""},
		{"a name of pods", both, port(intstr.FromString("web"), pods), "shop", "shop"},
		{"a name of pods and in a network", both, port(intstr.FromString("web"), pods, block), "*", "shop"},
		{"pods", both, rule(pods), "shop", "shop"},
		{"namespaces", both, rule(of("back")), "bank pay", "bank pay"},
		{"namespaces that none is", both, rule(of("middle")), "", ""},
		{"pods and namespaces", both, rule(pods, of("back"), of("back")), "bank pay shop", "bank pay shop"},
		{"the own namespace by its labels", both, rule(of("front")), "shop", "shop"},
		{"in two rules", both, append(rule(pods), rule(of("back"))...), "bank pay shop", "bank pay shop"},
		{"every namespace", both, rule(networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}}), "*", "*"},
		{"a selector that cannot be read", both, rule(unreadable), "", ""},
		{"no types, and a rule", nil, rule(pods), "shop", "shop"},
		{"ingress alone", both[:1], rule(pods), "", ""},
	} {
		n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: c.types, Egress: c.rules}}
		r := remote{most: MaxRemoteNamespaces, peerSpaces: peerSpacesOf([]*networkPolicyEntry{readNetworkPolicy(n, nil)}, true)}
		if got := spacesText(r.spacesFrom(map[string]bool{"shop": true}, namespaces)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		in := n.DeepCopy()
		if in.Spec.Egress = nil; len(c.types) == 1 {
			in.Spec.PolicyTypes = both[1:]
		}
		for _, rule := range c.rules {
			in.Spec.Ingress = append(in.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: rule.To, Ports: rule.Ports})
		}
		for _, enforced := range []bool{false, true} {
			r, want := remote{most: MaxRemoteNamespaces, peerSpaces: peerSpacesOf([]*networkPolicyEntry{readNetworkPolicy(in, nil)}, enforced)}, ""
			if enforced {
				want = c.from
			}
			if got := spacesText(r.spacesFrom(map[string]bool{"shop": true}, namespaces)); got != want {
				t.Errorf("%s: %q for ingress, enforced %v, want %q", c.name, got, enforced, want)
			}
		}
		for _, ignored := range []*networkingv1.NetworkPolicy{n, in} {
			ignored.Labels = map[string]string{"namegate.io/ignore": "true"}
			if e := readNetworkPolicy(ignored, nil); !e.to.none() || !e.from.none() {
				t.Errorf("%s: an ignored one wants pods of %v and %v to be known", c.name, e.to, e.from)
			}
		}
	}
}

// spacesText writes namespaces, "*" for every one.
func spacesText(set map[string]bool) string {
	if set[metav1.NamespaceAll] {
		return "*"
	}
	return strings.Join(slices.Sorted(maps.Keys(set)), " ")
}

// TestEnforcedNetworkPolicies: where they are enforced alone, their sources are known as peers, in every namespace
// with pods of this node.
func TestEnforcedNetworkPolicies(t *testing.T) {
	inbound := func(n *networkingv1.NetworkPolicy) {
		n.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		n.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: n.Spec.Egress[0].To}}
		n.Spec.Egress = nil
	}
	for _, enforced := range []bool{false, true} {
		api := newAPIServer(t)
		api.put("pods", aPod("web", "10.0.0.1"))
		api.put("pods", aFarPod("far", "10.0.1.1"))
		client, dyn := api.clients()
		r := runWith(t, Options{Client: client, Dynamic: dyn, NodeName: ourNode, Log: slog.New(slog.DiscardHandler), Clock: hastyClock{}, EnforceNetworkPolicies: enforced})
		text := func(s State) string {
			return fmt.Sprint(s.Input.EnforceNetworkPolicies, " ", len(s.Input.NetworkPolicies), " ", len(s.Input.Remote), " ", s.Input.RemoteNamespaces)
		}
		r.until(fmt.Sprint(enforced, " 0 0 []"), text)
		api.put("networkpolicies", with(aNetworkPolicy("shop", "db", "db"), inbound))
		if !enforced {
			r.until("false 1 0 []", text)
			continue
		}
		r.until("true 1 1 [shop]", text)
		api.remove("networkpolicies/shop/db")
		r.until("true 0 0 []", text)
	}
}
