package cyclonus

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func (g *maker) selector() metav1.LabelSelector {
	var s metav1.LabelSelector
	for range g.IntN(3) {
		key := g.one("app", "tier", "example.org/team")
		if g.in(2) {
			if s.MatchLabels == nil {
				s.MatchLabels = map[string]string{}
			}
			s.MatchLabels[key] = g.one("", "a", "a", "b", "c")
			continue
		}
		r := metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOperator(g.one("In", "NotIn", "Exists", "DoesNotExist"))}
		if r.Operator == "In" || r.Operator == "NotIn" {
			for range 1 + g.IntN(3) {
				r.Values = append(r.Values, g.one("", "a", "b", "c"))
			}
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	if g.in(60) {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: g.one("app", "a b", ""), Operator: metav1.LabelSelectorOperator(g.one("In", "Like", "Exists")), Values: []string{g.one("x", "y z")}})
	}
	return s
}

func (g *maker) spaces() *metav1.LabelSelector {
	s := g.selector()
	if g.in(4) {
		s = metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": g.one("x", "y", "z")}}
	}
	return &s
}

func (g *maker) policy(w *world, i int) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace(), Name: fmt.Sprint("np-", i)}}
	for w.has(np) {
		np.Name += "x"
	}
	if !g.in(3) {
		np.Spec.PodSelector = g.selector()
	}
	for _, rules := 0, g.IntN(4); len(np.Spec.Egress) < rules; {
		np.Spec.Egress = append(np.Spec.Egress, g.rule())
	}
	for _, rules := 0, g.IntN(4); len(np.Spec.Ingress) < rules; {
		np.Spec.Ingress = append(np.Spec.Ingress, inward(g.rule()))
	}
	switch g.IntN(8) {
	case 0: // left out
	case 1, 2:
		np.Spec.PolicyTypes = []networkingv1.PolicyType{"Ingress"}
	case 3, 4:
		np.Spec.PolicyTypes = []networkingv1.PolicyType{"Ingress", "Egress"}
	default:
		np.Spec.PolicyTypes = []networkingv1.PolicyType{"Egress"}
	}
	return np
}

// edited returns a policy with one thing in it changed, or with nothing: a new object
// that says the same.
func (g *maker) edited(np *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	np = np.DeepCopy()
	spec := &np.Spec
	switch kind := g.IntN(6); {
	case kind == 0:
		spec.PodSelector = g.selector()
	case kind == 1:
		spec.PolicyTypes = [][]networkingv1.PolicyType{nil, {"Ingress"}, {"Egress"}, {"Ingress", "Egress"}}[g.IntN(4)]
	case kind == 2:
		spec.Ingress = append(spec.Ingress, networkingv1.NetworkPolicyIngressRule{})
	case len(spec.Ingress) > 0 && g.in(2):
		r := &spec.Ingress[g.IntN(len(spec.Ingress))]
		*r = inward(g.changed(outward(*r), kind))
	case len(spec.Egress) > 0:
		r := &spec.Egress[g.IntN(len(spec.Egress))]
		*r = g.changed(*r, kind)
	}
	return np
}

// changed is a rule with other ports, other peers, or another rule.
func (g *maker) changed(r networkingv1.NetworkPolicyEgressRule, kind int) networkingv1.NetworkPolicyEgressRule {
	switch kind {
	case 3:
		return g.rule()
	case 4:
		r.To = append(r.To[:len(r.To)/2], g.peer())
	case 5:
		r.Ports = append(r.Ports[:len(r.Ports)/2], g.port())
	}
	return r
}

// has tells whether a policy of that name is there that the change would not replace:
// the caller takes an old one away.
func (w *world) has(np *networkingv1.NetworkPolicy) bool {
	return slices.ContainsFunc(w.ours, func(o *networkingv1.NetworkPolicy) bool { return o.Namespace == np.Namespace && o.Name == np.Name })
}

func (g *maker) rule() networkingv1.NetworkPolicyEgressRule {
	var r networkingv1.NetworkPolicyEgressRule
	for range g.IntN(4) {
		r.To = append(r.To, g.peer())
	}
	for range g.IntN(4) {
		r.Ports = append(r.Ports, g.port())
	}
	return r
}

func (g *maker) peer() networkingv1.NetworkPolicyPeer {
	var p networkingv1.NetworkPolicyPeer
	switch g.IntN(5) {
	case 0:
		p.PodSelector = ptr(g.selector())
	case 1:
		p.NamespaceSelector = g.spaces()
	case 2:
		p.PodSelector, p.NamespaceSelector = ptr(g.selector()), g.spaces()
	default:
		p.IPBlock = g.block()
	}
	if g.in(80) { // two things, or nothing
		p.PodSelector = ptr(g.selector())
		if g.in(2) {
			p = networkingv1.NetworkPolicyPeer{}
		}
	}
	return p
}

// near tells whether an address is, or is next to, one that a policy names.
func (g *maker) near() netip.Addr {
	a := outside[g.IntN(len(outside))]
	switch g.IntN(4) {
	case 0:
		a = address4(1 + g.IntN(16))
	case 1:
		a = address6(1 + g.IntN(16))
	}
	switch g.IntN(5) {
	case 0:
		a = a.Next()
	case 1:
		a = a.Prev()
	}
	if !a.IsValid() {
		return outside[0]
	}
	return a
}

func (g *maker) bits(a netip.Addr, least int) int {
	if b := a.BitLen() - g.IntN(13); g.in(3) && b >= least {
		return b
	}
	return least + g.IntN(a.BitLen()-least+1)
}

func (g *maker) block() *networkingv1.IPBlock {
	a := g.near()
	p := netip.PrefixFrom(a, g.bits(a, 0))
	if g.in(10) {
		p = netip.PrefixFrom(a, 0)
	}
	if !g.in(4) {
		p = p.Masked()
	}
	b := &networkingv1.IPBlock{CIDR: p.String()}
	for range g.IntN(4) {
		e := g.near()
		if !p.Contains(e) {
			e = p.Addr()
		}
		except := netip.PrefixFrom(e, g.bits(e, p.Bits()))
		if !g.in(4) {
			except = except.Masked()
		}
		b.Except = append(b.Except, except.String())
	}
	if g.in(40) {
		b.CIDR = g.one("10.0.0.0", "10.0.0.0/33", "::ffff:10.0.0.0/104", "all", "", "10.1.0.0/016")
	}
	if g.in(40) {
		b.Except = append(b.Except, g.one("192.0.2.0/24", "2001:db8::/32", "nothing", "::ffff:10.1.0.0/112", "0.0.0.0/0"))
	}
	return b
}

func (g *maker) port() networkingv1.NetworkPolicyPort {
	var p networkingv1.NetworkPolicyPort
	if !g.in(4) {
		p.Protocol = ptr(corev1.Protocol(g.one("TCP", "TCP", "UDP", "SCTP")))
	}
	numbers := []int32{1, 52, 53, 54, 79, 80, 81, 8080, 65535}
	switch g.IntN(4) {
	case 0:
		p.Port = ptr(intstr.FromString(g.one("web", "dns", "db", "none")))
	case 1:
		p.Port = ptr(intstr.FromInt32(numbers[g.IntN(len(numbers))]))
	case 2:
		p.Port = ptr(intstr.FromInt32(numbers[g.IntN(len(numbers))]))
		p.EndPort = ptr(max(p.Port.IntVal, numbers[g.IntN(len(numbers))]))
	}
	if g.in(40) {
		switch g.IntN(4) {
		case 0:
			p.EndPort = ptr(int32(g.IntN(90)))
		case 1:
			p.Protocol = ptr(corev1.Protocol(g.one("ICMP", "tcp", "")))
		case 2:
			p.Port = ptr(intstr.FromInt32(int32(g.IntN(3)-1) * 65536))
		case 3:
			p.Port, p.EndPort = ptr(intstr.FromInt32(80)), ptr(int32(70000))
		}
	}
	return p
}

// ignored are NetworkPolicies for another engine, which open everything and count for nothing.
func (g *maker) ignored(w *world) []*networkingv1.NetworkPolicy {
	if !g.in(4) {
		return nil
	}
	np := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace(), Name: "ignored", Labels: map[string]string{"namegate.io/ignore": "true"}},
		Spec:       networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{}}, Ingress: []networkingv1.NetworkPolicyIngressRule{{}}},
	}
	return []*networkingv1.NetworkPolicy{np}
}
