package compile

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/policy"
)

// netTwin evaluates NetworkPolicies as they are written, one question at a time.
type netTwin struct{ Input }

// allows returns "policy path" of each rule by which a pod may reach an address.
func (w netTwin) allows(pod *policy.Pod, a netip.Addr, proto policy.Protocol, port uint16) []string {
	var found []string
	for _, n := range w.NetworkPolicies {
		if !w.selectsFor(n, pod, false) {
			continue
		}
		for i, rule := range n.Spec.Egress {
			if w.rule(n, &rule, nil, a, proto, port) {
				found = append(found, fmt.Sprintf("%s/%s spec.egress[%d]", n.Namespace, n.Name, i))
			}
		}
	}
	slices.Sort(found)
	return found
}

// selectsFor tells whether a NetworkPolicy selects a pod for a direction.
func (w netTwin) selectsFor(n *networkingv1.NetworkPolicy, pod *policy.Pod, ingress bool) bool {
	if n.Labels["namegate.io/ignore"] == "true" || n.Namespace != pod.Namespace || !twinSelects(&n.Spec.PodSelector, pod.Labels) {
		return false
	}
	switch {
	case len(n.Spec.PolicyTypes) > 0 && ingress:
		return slices.Contains(n.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
	case len(n.Spec.PolicyTypes) > 0:
		return slices.Contains(n.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	}
	return ingress || len(n.Spec.Egress) > 0
}

func twinSelects(s *metav1.LabelSelector, set map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(set))
}

// rule tells whether a rule has a peer and a port. Named ports are of the subject, if it is not nil, else of the
// peer.
func (w netTwin) rule(n *networkingv1.NetworkPolicy, rule *networkingv1.NetworkPolicyEgressRule, subject *policy.Pod, a netip.Addr, proto policy.Protocol, port uint16) bool {
	if len(rule.Ports) == 0 {
		return w.leads(n, rule, a, nil)
	}
	words := map[corev1.Protocol]policy.Protocol{corev1.ProtocolTCP: policy.TCP, corev1.ProtocolUDP: policy.UDP, corev1.ProtocolSCTP: policy.SCTP}
	for _, p := range rule.Ports {
		word := corev1.ProtocolTCP
		if p.Protocol != nil {
			word = *p.Protocol
		}
		want, known := words[word]
		switch {
		case !known || want != proto || p.Port == nil && p.EndPort != nil:
		case p.Port == nil:
			if w.leads(n, rule, a, nil) {
				return true
			}
		case p.Port.Type == intstr.String:
			named := func(pod *policy.Pod) bool {
				return slices.Contains(pod.Ports, policy.NamedPort{Name: p.Port.StrVal, Protocol: proto, Port: port})
			}
			if p.EndPort == nil && subject == nil && w.leads(n, rule, a, named) {
				return true
			}
			if p.EndPort == nil && subject != nil && named(subject) && w.leads(n, rule, a, nil) {
				return true
			}
		default:
			last := p.Port.IntVal
			if p.EndPort != nil {
				last = *p.EndPort
			}
			if p.Port.IntVal >= 1 && last <= 65535 && p.Port.IntVal <= int32(port) && int32(port) <= last && w.leads(n, rule, a, nil) {
				return true
			}
		}
	}
	return false
}

// leads tells whether a rule leads to an address; if is asked of the pod there, if it
// is not nil.
func (w netTwin) leads(n *networkingv1.NetworkPolicy, rule *networkingv1.NetworkPolicyEgressRule, a netip.Addr, condition func(*policy.Pod) bool) bool {
	var there []*policy.Pod
	for i := range w.Pods {
		there = append(there, &w.Pods[i])
	}
	there = append(there, w.Remote...)
	there = slices.DeleteFunc(there, func(p *policy.Pod) bool {
		return p.HostNetwork || p.Phase == "Succeeded" || p.Phase == "Failed" || !slices.Contains(p.IPs, a) || policy.CheckPodAddr(a) != nil || condition != nil && !condition(p)
	})
	if len(rule.To) == 0 {
		return condition == nil || len(there) > 0
	}
	for _, to := range rule.To {
		switch {
		case to.IPBlock != nil && to.PodSelector == nil && to.NamespaceSelector == nil:
			if (condition == nil || len(there) > 0) && twinBlock(to.IPBlock, a) {
				return true
			}
		case to.IPBlock == nil && (to.PodSelector != nil || to.NamespaceSelector != nil):
			if slices.ContainsFunc(there, func(p *policy.Pod) bool { return w.selects(n, &to, p) }) {
				return true
			}
		}
	}
	return false
}

func (w netTwin) selects(n *networkingv1.NetworkPolicy, to *networkingv1.NetworkPolicyPeer, p *policy.Pod) bool {
	if to.NamespaceSelector == nil && p.Namespace != n.Namespace {
		return false
	}
	if s := to.NamespaceSelector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		if set, known := w.Namespaces[p.Namespace]; !known || !twinSelects(s, set) {
			return false
		}
	}
	return to.PodSelector == nil || twinSelects(to.PodSelector, p.Labels)
}

func twinBlock(b *networkingv1.IPBlock, a netip.Addr) bool {
	whole, err := netip.ParsePrefix(b.CIDR)
	if err != nil || whole.Addr().Is4In6() {
		return false
	}
	in := whole.Masked().Contains(a)
	for _, text := range b.Except {
		hole, err := netip.ParsePrefix(text)
		if err != nil || hole.Addr().Is4In6() || hole.Bits() < whole.Bits() || !whole.Contains(hole.Addr()) {
			return false
		}
		in = in && !hole.Contains(a)
	}
	return in
}

// netDice makes a small world at random, so that everything meets everything.
type netDice struct{ *rand.Rand }

func roll[T any](d netDice, of ...T) T { return of[d.IntN(len(of))] }

func (d netDice) labels() map[string]string {
	set := map[string]string{}
	for range d.IntN(3) {
		set[roll(d, "app", "tier", "env")] = roll(d, "a", "b", "")
	}
	return set
}

func (d netDice) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	for range d.IntN(2) {
		s.MatchLabels = map[string]string{roll(d, "app", "tier", "env"): roll(d, "a", "b", "")}
	}
	for range d.IntN(3) {
		r := metav1.LabelSelectorRequirement{Key: roll(d, "app", "tier", "env"),
			Operator: roll(d, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			r.Values = roll(d, []string{"a"}, []string{"b", "a"}, []string{"", "b"}, []string{"c", "c"})
		}
		if d.IntN(40) == 0 {
			r.Operator = roll(d, "in", metav1.LabelSelectorOpIn)
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	return s
}

func (d netDice) pod(name string) *policy.Pod {
	p := &policy.Pod{PodRef: policy.PodRef{Namespace: roll(d, "shop", "shop", "shop", "bank", "lone"), Name: name, UID: roll(d, "1", "2")}, Labels: d.labels(),
		Phase: roll(d, "Running", "Running", "Running", "Running", "Succeeded"), HostNetwork: d.IntN(12) == 0}
	for range d.IntN(3) {
		a := addr(roll(d, fmt.Sprintf("10.0.0.%d", d.IntN(12)), fmt.Sprintf("2001:db8::%x", d.IntN(8)), fmt.Sprintf("10.0.0.%d", d.IntN(12))))
		if !slices.Contains(p.IPs, a) {
			p.IPs = append(p.IPs, a)
		}
	}
	for range d.IntN(4) {
		p.Ports = append(p.Ports, policy.NamedPort{Name: roll(d, "web", "sql"), Protocol: roll(d, policy.TCP, policy.TCP, policy.UDP, policy.SCTP), Port: roll[uint16](d, 80, 443, 5432)})
	}
	return p
}

func (d netDice) block() *networkingv1.IPBlock {
	b := &networkingv1.IPBlock{CIDR: roll(d, "10.0.0.0/24", "10.0.0.4/30", "10.0.0.9/30", "0.0.0.0/0", "::/0", "2001:db8::/126", "10.0.0.3/32", "10.0.0.8/29")}
	for range d.IntN(3) {
		b.Except = append(b.Except, roll(d, "10.0.0.4/31", "10.0.0.6/32", "10.0.0.8/30", "10.0.0.0/25", "2001:db8::2/127", "10.0.0.5/32"))
	}
	if d.IntN(12) == 0 {
		b.CIDR = roll(d, "10.0.0.0", "::ffff:10.0.0.0/100", "10.0.0.0/33", "")
	}
	return b
}

func (d netDice) rule() networkingv1.NetworkPolicyEgressRule {
	var rule networkingv1.NetworkPolicyEgressRule
	for range d.IntN(4) {
		var to networkingv1.NetworkPolicyPeer
		switch d.IntN(5) {
		case 0:
			to.PodSelector = d.selector()
		case 1:
			to.NamespaceSelector = d.spaces()
		case 2:
			to.PodSelector, to.NamespaceSelector = d.selector(), d.spaces()
		default:
			to.IPBlock = d.block()
		}
		switch d.IntN(30) {
		case 0:
			to.PodSelector, to.IPBlock = d.selector(), d.block()
		case 1:
			to = networkingv1.NetworkPolicyPeer{}
		}
		rule.To = append(rule.To, to)
	}
	for range d.IntN(4) {
		var port *intstr.IntOrString
		var end *int32
		switch d.IntN(4) {
		case 0:
			port = ptr(intstr.FromString(roll(d, "web", "sql", "sql", "WEB")))
		case 1, 2:
			port = ptr(intstr.FromInt32(roll[int32](d, 80, 443, 81, 0, 70000)))
			if d.IntN(2) == 0 {
				end = ptr(roll[int32](d, 443, 500, 70000))
			}
		}
		if d.IntN(20) == 0 {
			end = ptr(int32(90))
		}
		rule.Ports = append(rule.Ports, netPort(roll(d, "", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP, "ICMP"), port, end))
	}
	return rule
}

func (d netDice) spaces() *metav1.LabelSelector {
	return roll(d, &metav1.LabelSelector{}, labelled("team", "a"), labelled(corev1.LabelMetadataName, "bank"), d.selector())
}

func (d netDice) policy(name string) *networkingv1.NetworkPolicy {
	n := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: roll(d, "shop", "shop", "bank"), Name: name}}
	n.Spec.PodSelector = *roll(d, d.selector(), &metav1.LabelSelector{}, &metav1.LabelSelector{})
	n.Spec.PolicyTypes = roll(d, nil, nil, []networkingv1.PolicyType{"Egress"}, []networkingv1.PolicyType{"Ingress", "Egress"}, []networkingv1.PolicyType{"Ingress"})
	for range d.IntN(4) {
		n.Spec.Egress = append(n.Spec.Egress, d.rule())
	}
	for range d.IntN(3) {
		rule := d.rule()
		n.Spec.Ingress = append(n.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: rule.To, Ports: rule.Ports})
	}
	if d.IntN(12) == 0 {
		n.Labels = map[string]string{"namegate.io/ignore": "true"}
	}
	return n
}

func (d netDice) namespaces() map[string]map[string]string {
	out := spaces()
	for range d.IntN(3) {
		out[roll(d, "shop", "bank", "lone")] = d.labels()
	}
	if d.IntN(4) == 0 {
		delete(out, "lone")
	}
	return out
}

// input is a whole world; every pod of this node is selected.
func (d netDice) input() Input {
	in := Input{Namespaces: d.namespaces()}
	for _, space := range []string{"shop", "bank"} {
		p := aPolicy("closed", "")
		p.Namespace = space
		in.Policies = append(in.Policies, p)
	}
	for i := range 1 + d.IntN(4) {
		p := d.pod(fmt.Sprintf("pod%d", i))
		p.NodeName = roll(d, "", "", "far")
		in.Pods = append(in.Pods, *p)
	}
	for i := range d.IntN(8) {
		p := d.pod(fmt.Sprintf("far%d", i))
		p.NodeName = "far"
		in.Remote = append(in.Remote, p)
	}
	for i := range d.IntN(5) {
		in.NetworkPolicies = append(in.NetworkPolicies, d.policy(fmt.Sprintf("np%d", i)))
	}
	return in
}

var twinAddrs = func() []netip.Addr {
	all := []netip.Addr{addr("198.51.100.7"), addr("2001:db9::1"), addr("169.254.169.254")}
	for i := range 13 {
		all = append(all, addr(fmt.Sprintf("10.0.0.%d", i)))
	}
	for i := range 9 {
		all = append(all, addr(fmt.Sprintf("2001:db8::%x", i)))
	}
	return all
}()

// compareWithTwin asks view and twin of everything that there is in the world of netDice.
func compareWithTwin(t *testing.T, in Input, s *policy.Snapshot) (asked, open int) {
	t.Helper()
	for _, v := range s.Views {
		inbound := netTwin{in}.inbound(v)
		isolated := netTwin{in}.isolates(v, false)
		for _, a := range twinAddrs {
			for _, proto := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP, 1} {
				for _, port := range []uint16{0, 80, 90, 443, 5432} {
					var got []string
					for _, r := range peersAt(s, v, a, proto, port) {
						got = append(got, r.Policy+" "+r.Path)
					}
					slices.Sort(got)
					got = slices.Compact(got)
					var want []string
					if isolated && !strings.Contains(v.Pod.UID, "+") { // nothing is allowed for an address in conflict
						want = netTwin{in}.allows(&v.Pod, a, proto, port)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("%v to %v %v %d: %s\n%s", v.Pod, a, proto, port, diff, strings.Join(append(ruleTexts(v), setTexts(s)...), "\n"))
					}
					at := netip.AddrPortFrom(a, port)
					flow := policy.Flow{Protocol: proto, Dialled: at, Reached: at, Would: true}
					if allowed, by := policy.Evaluate(v, s, &flow); allowed != (!isolated || len(want) > 0 || slices.Contains(v.Pod.IPs, a)) {
						t.Fatalf("%v to %v %v: allowed %v by %v, the twin by %v", v.Pod, at, proto, allowed, by, want)
					}
					open += inbound.compare(t, s, a, proto, port)
					asked, open = asked+2, open+min(len(got), 1)
				}
			}
		}
	}
	return asked, open
}

func TestPeersLikeTwin(t *testing.T) {
	asked, open := 0, 0
	for seed := range uint64(500) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := netDice{rand.New(rand.NewPCG(seed, 11))}
			in := d.withStandards(d.input())
			a, o := compareWithTwin(t, in, New().Compile(in))
			asked, open = asked+a, open+o
		})
	}
	if open < asked/20 || open > asked*19/20 {
		t.Errorf("of %d questions %d are allowed; the worlds are too simple", asked, open)
	}
}
