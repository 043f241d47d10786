package cyclonus

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/mattfenwick/cyclonus/pkg/matcher"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/policy"
)

// difference is a place where cyclonus differs from Kubernetes, or has no result because
// the API server refuses such a policy. Nothing is left out for it: the oracle gets an
// equivalent policy that it reads as Kubernetes reads the original, and the compiler gets
// the original. TestDifferences shows that each is real.
type difference string

const (
	// NotIn holds for an object without the key; cyclonus says that it does not. Written
	// as two: NotIn, and DoesNotExist.
	notInMissing difference = "NotIn of a missing key"
	// matchLabels with an empty value requires the label; cyclonus accepts a missing one.
	// Written as In with the empty value.
	emptyValue difference = "matchLabels with an empty value"
	// Without policyTypes a policy is one of ingress, and one of egress if it has a rule of
	// egress; cyclonus panics. Written out.
	noTypes difference = "policyTypes left out"
	// Selectors that the API server refuses; cyclonus panics, or misreads them. The part
	// opens nothing: it is left out, and so is a rule without remaining parts.
	badSelector difference = "a selector that cannot be"
	badPeer     difference = "a peer that is none or two things"
	badBlock    difference = "an ipBlock that cannot be, or an except outside of it"
	badPort     difference = "a port that cannot be"
	// A pod cannot block access to itself; cyclonus asks the policies, and leaves these
	// connections out of its own comparison. The expectation is corrected.
	itself difference = "a pod and itself"
)

// counts counts the equivalent policies that the oracle got.
type counts map[difference]int

// translated returns policies for cyclonus that mean what np does to Kubernetes.
func translated(np *networkingv1.NetworkPolicy, n counts) []*networkingv1.NetworkPolicy {
	selectors, ok := n.selectors(&np.Spec.PodSelector)
	if !ok {
		return nil // selects no pod
	}
	types := np.Spec.PolicyTypes
	if len(types) == 0 {
		n[noTypes]++
		types = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(np.Spec.Egress) > 0 {
			types = append(types, networkingv1.PolicyTypeEgress)
		}
	}
	var egress []networkingv1.NetworkPolicyEgressRule
	for _, r := range np.Spec.Egress {
		if r, ok := n.rule(r); ok {
			egress = append(egress, r)
		}
	}
	var ingress []networkingv1.NetworkPolicyIngressRule
	for _, r := range np.Spec.Ingress {
		if r, ok := n.rule(outward(r)); ok {
			ingress = append(ingress, inward(r))
		}
	}
	var out []*networkingv1.NetworkPolicy
	for _, s := range selectors {
		p := np.DeepCopy()
		p.Spec = networkingv1.NetworkPolicySpec{PodSelector: s, PolicyTypes: types, Egress: egress, Ingress: ingress}
		out = append(out, p)
	}
	return out
}

// inward is the rule of the other direction with the same peers and ports, and outward the reverse.
func inward(r networkingv1.NetworkPolicyEgressRule) networkingv1.NetworkPolicyIngressRule {
	return networkingv1.NetworkPolicyIngressRule{Ports: r.Ports, From: r.To}
}

func outward(r networkingv1.NetworkPolicyIngressRule) networkingv1.NetworkPolicyEgressRule {
	return networkingv1.NetworkPolicyEgressRule{Ports: r.Ports, To: r.From}
}

// rule returns false for a rule that opens nothing.
func (n counts) rule(r networkingv1.NetworkPolicyEgressRule) (networkingv1.NetworkPolicyEgressRule, bool) {
	var out networkingv1.NetworkPolicyEgressRule
	for _, p := range r.Ports {
		if !possible(p) {
			n[badPort]++
			continue
		}
		out.Ports = append(out.Ports, p)
	}
	for _, p := range r.To {
		out.To = append(out.To, n.peers(p)...)
	}
	return out, len(out.Ports) > 0 == (len(r.Ports) > 0) && len(out.To) > 0 == (len(r.To) > 0)
}

// possible tells whether the API server accepts it.
func possible(p networkingv1.NetworkPolicyPort) bool {
	if p.Protocol != nil && !slices.Contains([]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, *p.Protocol) {
		return false
	}
	switch {
	case p.Port == nil:
		return p.EndPort == nil
	case p.Port.Type == intstr.String:
		return p.EndPort == nil && p.Port.StrVal != ""
	case p.Port.IntVal < 1 || p.Port.IntVal > 65535:
		return false
	}
	return p.EndPort == nil || *p.EndPort >= p.Port.IntVal && *p.EndPort <= 65535
}

func (n counts) peers(p networkingv1.NetworkPolicyPeer) []networkingv1.NetworkPolicyPeer {
	if (p.IPBlock != nil) == (p.PodSelector != nil || p.NamespaceSelector != nil) {
		n[badPeer]++
		return nil
	}
	if p.IPBlock != nil {
		if !sound(p.IPBlock) {
			n[badBlock]++
			return nil
		}
		return []networkingv1.NetworkPolicyPeer{p}
	}
	spaces, ok1 := n.optional(p.NamespaceSelector)
	pods, ok2 := n.optional(p.PodSelector)
	if !ok1 || !ok2 {
		return nil
	}
	var out []networkingv1.NetworkPolicyPeer
	for _, s := range spaces {
		for _, pod := range pods {
			out = append(out, networkingv1.NetworkPolicyPeer{NamespaceSelector: s, PodSelector: pod})
		}
	}
	return out
}

func sound(b *networkingv1.IPBlock) bool {
	block, ok := prefix(b.CIDR)
	for _, e := range b.Except {
		out, parsed := prefix(e)
		ok = ok && parsed && out.Bits() >= block.Bits() && block.Contains(out.Addr())
	}
	return ok
}

func prefix(s string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(s)
	return p.Masked(), err == nil && !p.Addr().Is4In6()
}

func (n counts) optional(s *metav1.LabelSelector) ([]*metav1.LabelSelector, bool) {
	if s == nil {
		return []*metav1.LabelSelector{nil}, true
	}
	all, ok := n.selectors(s)
	var out []*metav1.LabelSelector
	for i := range all {
		out = append(out, &all[i])
	}
	return out, ok
}

// selectors returns selectors of which cyclonus has one hold where Kubernetes has s
// hold; false if s cannot be.
func (n counts) selectors(s *metav1.LabelSelector) ([]metav1.LabelSelector, bool) {
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		n[badSelector]++
		return nil, false
	}
	out := []metav1.LabelSelector{{}}
	for k, v := range s.MatchLabels {
		if v == "" {
			n[emptyValue]++
		}
		out[0].MatchExpressions = append(out[0].MatchExpressions, metav1.LabelSelectorRequirement{Key: k, Operator: metav1.LabelSelectorOpIn, Values: []string{v}})
	}
	// In a fixed order: cyclonus tells targets apart by it.
	slices.SortFunc(out[0].MatchExpressions, func(a, b metav1.LabelSelectorRequirement) int { return cmp.Compare(a.Key, b.Key) })
	for _, r := range s.MatchExpressions {
		ways := []metav1.LabelSelectorRequirement{r}
		if r.Operator == metav1.LabelSelectorOpNotIn {
			n[notInMissing]++
			ways = append(ways, metav1.LabelSelectorRequirement{Key: r.Key, Operator: metav1.LabelSelectorOpDoesNotExist})
		}
		var next []metav1.LabelSelector
		for _, o := range out {
			for _, w := range ways {
				next = append(next, metav1.LabelSelector{MatchExpressions: append(slices.Clone(o.MatchExpressions), w)})
			}
		}
		out = next
	}
	return out, true
}

// oracle says by cyclonus what some policies allow.
type oracle struct {
	all *matcher.Policy
	// alone is each policy by itself, by "namespace/name".
	alone map[string]*matcher.Policy
}

func newOracle(policies []*networkingv1.NetworkPolicy, n counts) *oracle {
	o := &oracle{alone: map[string]*matcher.Policy{}}
	var all []*networkingv1.NetworkPolicy
	for _, np := range policies {
		ps := translated(np, n)
		all = append(all, ps...)
		o.alone[np.Namespace+"/"+np.Name] = matcher.BuildNetworkPolicies(false, ps)
	}
	o.all = matcher.BuildNetworkPolicies(false, all)
	return o
}

// selecting returns the names of the policies that select a pod for a direction, sorted.
func (o *oracle) selecting(pod *policy.Pod, ingress bool) []string {
	names := map[string]bool{}
	for _, target := range o.all.TargetsApplyingToPod(ingress, pod.Namespace, pod.Labels) {
		for _, np := range target.SourceRules {
			names[np.Namespace+"/"+np.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
