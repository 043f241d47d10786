package cyclonus

import (
	"testing"

	"github.com/mattfenwick/cyclonus/pkg/kube"
	"github.com/mattfenwick/cyclonus/pkg/matcher"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

func ptr[T any](v T) *T { return &v }

// TestSelectorDifferences shows where cyclonus' selectors are not Kubernetes', that
// there is no other such place, and that the words the oracle gets instead are right.
func TestSelectorDifferences(t *testing.T) {
	values := []string{"", "a", "b"}
	var sets []map[string]string
	for _, k := range append([]string{"-"}, values...) {
		for _, l := range append([]string{"-"}, values...) {
			set := map[string]string{}
			if k != "-" {
				set["k"] = k
			}
			if l != "-" {
				set["l"] = l
			}
			sets = append(sets, set)
		}
	}
	var selectors []metav1.LabelSelector
	for _, v := range values {
		selectors = append(selectors, metav1.LabelSelector{MatchLabels: map[string]string{"k": v}})
	}
	var requirements []metav1.LabelSelectorRequirement
	for _, key := range []string{"k", "l"} {
		for _, op := range []metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn} {
			for _, vs := range [][]string{{""}, {"a"}, {"a", "b"}, {"", "b"}} {
				requirements = append(requirements, metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: vs})
			}
		}
		requirements = append(requirements, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists},
			metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist})
	}
	for i, a := range requirements {
		selectors = append(selectors, metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{a}})
		for _, b := range requirements[i:] {
			selectors = append(selectors, metav1.LabelSelector{MatchLabels: map[string]string{"l": "a"}, MatchExpressions: []metav1.LabelSelectorRequirement{a, b}},
				metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{a, b}})
		}
	}
	real := counts{}
	for _, s := range selectors {
		selector, err := metav1.LabelSelectorAsSelector(&s)
		fatal.If(t, err)
		n := counts{}
		words, ok := n.selectors(&s)
		if !ok {
			t.Fatalf("%v cannot be", s)
		}
		for _, set := range sets {
			want := selector.Matches(labels.Set(set))
			if kube.IsLabelsMatchLabelSelector(set, s) != want {
				if n[notInMissing]+n[emptyValue] == 0 {
					t.Errorf("%v of %v: Kubernetes says %v, cyclonus not, and the oracle is told the same words", s, set, want)
				}
				for d := range n {
					real[d]++
				}
			}
			got := false
			for _, w := range words {
				got = got || kube.IsLabelsMatchLabelSelector(set, w)
			}
			if got != want {
				t.Errorf("%v of %v: Kubernetes says %v, cyclonus of %v %v", s, set, want, words, got)
			}
		}
	}
	for _, d := range []difference{notInMissing, emptyValue} {
		if real[d] == 0 {
			t.Errorf("%s is no difference any more", d)
		}
	}
}

// TestOtherDifferences shows that cyclonus has no result, or a wrong one, for policies
// that the API server refuses.
func TestOtherDifferences(t *testing.T) {
	tcp := ptr(corev1.ProtocolTCP)
	to := func(p networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{p}}}}
	}
	on := func(p networkingv1.NetworkPolicyPort) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{Ports: []networkingv1.NetworkPolicyPort{p}}}}
	}
	block := func(cidr string, except ...string) networkingv1.NetworkPolicySpec {
		return to(networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}})
	}
	peer := &matcher.TrafficPeer{IP: "10.1.0.2", Internal: &matcher.InternalPeer{Namespace: "x"}}
	for _, c := range []struct {
		what     difference
		spec     networkingv1.NetworkPolicySpec
		noTypes  bool
		protocol corev1.Protocol
		port     int
		// opens: cyclonus takes it literally, else it panics.
		opens bool
	}{
		{what: noTypes, noTypes: true},
		{what: badPeer, spec: to(networkingv1.NetworkPolicyPeer{}), opens: true},
		{what: badPeer, spec: to(networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}, PodSelector: &metav1.LabelSelector{}}), opens: true},
		{what: badBlock, spec: block("10.0.0.0")},
		{what: badBlock, spec: block("10.0.0.0/8", "all")},
		{what: badBlock, spec: block("10.0.0.0/8", "192.0.2.0/24"), opens: true},
		{what: badBlock, spec: block("10.0.0.0/08"), opens: true},
		{what: badPort, spec: on(networkingv1.NetworkPolicyPort{Protocol: tcp, EndPort: ptr(int32(90))})},
		{what: badPort, spec: on(networkingv1.NetworkPolicyPort{Protocol: tcp, Port: ptr(intstr.FromString("web")), EndPort: ptr(int32(90))})},
		{what: badPort, spec: on(networkingv1.NetworkPolicyPort{Protocol: tcp, Port: ptr(intstr.FromInt32(90)), EndPort: ptr(int32(80))})},
		{what: badPort, spec: on(networkingv1.NetworkPolicyPort{Protocol: tcp, Port: ptr(intstr.FromString(""))}), opens: true},
		{what: badPort, spec: on(networkingv1.NetworkPolicyPort{Protocol: ptr(corev1.Protocol("ICMP"))}), protocol: "ICMP", opens: true},
		{what: badPort, spec: on(networkingv1.NetworkPolicyPort{Protocol: tcp, Port: ptr(intstr.FromInt32(80)), EndPort: ptr(int32(70000))}), opens: true},
		{what: badSelector, spec: to(networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Like"}}}})},
		{what: badSelector, spec: to(networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k k", Operator: metav1.LabelSelectorOpDoesNotExist}}}}), opens: true},
	} {
		for _, ingress := range []bool{false, true} {
			np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"}, Spec: c.spec}
			types := []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
			if ingress {
				types = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
				np.Spec.Egress = nil
				for _, r := range c.spec.Egress {
					np.Spec.Ingress = append(np.Spec.Ingress, inward(r))
				}
			}
			if !c.noTypes {
				np.Spec.PolicyTypes = types
			}
			traffic := &matcher.Traffic{Source: peer, Destination: peer, ResolvedPort: 80, Protocol: corev1.ProtocolTCP}
			if c.protocol != "" {
				traffic.Protocol = c.protocol
			}
			says := func(nps ...*networkingv1.NetworkPolicy) (allowed, panicked bool) {
				defer func() { panicked = recover() != nil }()
				return matcher.BuildNetworkPolicies(false, nps).IsIngressOrEgressAllowed(traffic, ingress).IsAllowed(), false
			}
			allowed, panicked := says(np)
			if panicked == c.opens || allowed != c.opens {
				t.Errorf("%s: ingress %v, %+v: allowed %v, panic %v", c.what, ingress, np.Spec, allowed, panicked)
			}
			n := counts{}
			words := translated(np, n)
			if n[c.what] == 0 {
				t.Errorf("%s: ingress %v, %+v is not known as one", c.what, ingress, np.Spec)
			}
			if allowed, panicked := says(words...); panicked || allowed != (c.noTypes && !ingress) {
				t.Errorf("%s: ingress %v, %+v in other words: allowed %v, panic %v", c.what, ingress, np.Spec, allowed, panicked)
			}
		}
	}
}

// TestItself shows that cyclonus has policies deny what a pod sends to itself, in both directions.
func TestItself(t *testing.T) {
	w := newWorld()
	for _, ingress := range []bool{false, true} {
		np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"}}
		np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
		if ingress {
			np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		}
		e := &end{pod: w.pods[0], ingress: ingress}
		m := matcher.BuildNetworkPolicies(false, []*networkingv1.NetworkPolicy{np})
		if e.allows(m, w.traffic(e, e.pod.IPs[0], []*policy.Pod{e.pod}, packet{policy.TCP, 80})) {
			t.Errorf("ingress %v: %s is no difference any more", ingress, itself)
		}
	}
}
