package cnptest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/namegate/namegate/policy"
)

// Maker makes clusters in which few different labels, ports, names and addresses meet
// often. It writes what an API server lets in.
type Maker struct{ *rand.Rand }

type object = map[string]any

func (g *Maker) one(of ...string) string { return of[g.IntN(len(of))] }

// in tells true in one of n cases.
func (g *Maker) in(n int) bool { return g.IntN(n) == 0 }

func list[T any](n int, next func() T) (out []T) {
	for range n {
		out = append(out, next())
	}
	return out
}

var domains = []string{"a.test", "www.a.test", "b.www.a.test", "b.test", "c.b.test", "xa.test"}

// World makes a cluster.
func (g *Maker) World() *World {
	w := &World{Namespaces: map[string]map[string]string{}}
	for _, ns := range []string{"x", "y", "z"}[:1+g.IntN(3)] {
		w.Namespaces[ns] = g.labels()
		w.Namespaces[ns]["kubernetes.io/metadata.name"] = ns
	}
	for i := range 1 + g.IntN(3) {
		w.Nodes = append(w.Nodes, Node{fmt.Sprint("n", i), g.labels(), g.addresses("192.0.2.", "2001:db8::", i+1)})
	}
	for i := range 3 + g.IntN(5) {
		w.Pods = append(w.Pods, g.pod(w, i))
	}
	for i := range 1 + g.IntN(4) {
		w.CNPs = append(w.CNPs, g.CNP(i))
	}
	for i := range g.IntN(3) {
		w.NPs = append(w.NPs, g.np(w, i))
	}
	for range g.IntN(8) {
		w.Lookups = append(w.Lookups, Lookup{w.Pods[g.IntN(len(w.Pods))], g.one(domains...), list(1+g.IntN(2), g.outside)})
	}
	return w
}

func (g *Maker) labels() map[string]string {
	out := map[string]string{}
	for range g.IntN(3) {
		out[g.one("app", "tier")] = g.one("a", "b")
	}
	return out
}

// addresses are of one family or both.
func (g *Maker) addresses(v4, v6 string, i int) []netip.Addr {
	both := []netip.Addr{netip.MustParseAddr(fmt.Sprint(v4, i)), netip.MustParseAddr(fmt.Sprint(v6, i))}
	switch g.IntN(4) {
	case 0:
		return both[:1]
	case 1:
		return both[1:]
	}
	return both
}

func (g *Maker) outside() netip.Addr {
	return netip.MustParseAddr(g.one("198.51.100.1", "198.51.100.2", "203.0.113.1", "2001:db8:1::1", "2001:db8:2::1"))
}

func (g *Maker) pod(w *World, i int) *policy.Pod {
	p := &policy.Pod{PodRef: policy.PodRef{Namespace: []string{"x", "y", "z"}[g.IntN(len(w.Namespaces))], Name: fmt.Sprint("p", i)}, Labels: g.labels(), IPs: g.addresses("10.1.0.", "fd00::", i+1)}
	if g.in(8) {
		n := w.Nodes[g.IntN(len(w.Nodes))]
		p.HostNetwork, p.IPs = true, n.IPs
	}
	for range g.IntN(3) {
		port := policy.NamedPort{Name: g.one("http", "dns"), Protocol: []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP}[g.IntN(3)], Port: []uint16{80, 81, 53}[g.IntN(3)]}
		p.Ports = append(p.Ports, port)
	}
	return p
}

func (g *Maker) selector() object {
	s := object{}
	if g.in(2) {
		s["matchLabels"] = object{g.one("app", "tier"): g.one("a", "b")}
	}
	if g.in(3) {
		r := object{"key": g.one("app", "tier"), "operator": g.one("In", "NotIn", "Exists", "DoesNotExist")}
		if op := r["operator"]; op == "In" || op == "NotIn" {
			r["values"] = []any{g.one("a", "b")}
		}
		s["matchExpressions"] = []any{r}
	}
	return s
}

// CNP makes a ClusterNetworkPolicy.
func (g *Maker) CNP(i int) *unstructured.Unstructured {
	subject := object{"namespaces": object{}}
	switch g.IntN(4) {
	case 0:
		subject["namespaces"] = g.selector()
	case 1:
		subject = object{"pods": object{"namespaceSelector": g.selector(), "podSelector": g.selector()}}
	}
	spec := object{"tier": g.one("Admin", "Admin", "Baseline"), "priority": int64(g.IntN(3)), "subject": subject, "egress": list(min(1, g.IntN(8))*(1+g.IntN(4)), func() any { return g.rule() })}
	return &unstructured.Unstructured{Object: object{"metadata": object{"name": fmt.Sprintf("%s%d", g.one("a", "b", "c"), i)}, "spec": spec}}
}

func (g *Maker) rule() object {
	action := g.one("Accept", "Accept", "Deny", "Pass")
	named := g.in(5)
	to := list(1+g.IntN(2), func() any {
		kinds := []string{"namespaces", "pods", "networks", "nodes", "domainNames", "domainNames"}
		switch {
		case named:
			kinds = kinds[:2]
		case action != "Accept":
			kinds = kinds[:4]
		}
		switch kind := g.one(kinds...); kind {
		case "networks":
			return object{kind: list(1+g.IntN(2), g.network)}
		case "pods":
			return object{kind: object{"namespaceSelector": g.selector(), "podSelector": g.selector()}}
		case "domainNames":
			return object{kind: list(1+g.IntN(2), func() any { return g.one("", "*.", "*.") + g.one("A.test", "a.test.", "www.a.test", "b.test") })}
		default:
			return object{kind: g.selector()}
		}
	})
	rule := object{"action": action, "to": to}
	if named || g.in(2) {
		rule["protocols"] = list(1+g.IntN(2), func() any { return g.protocol(named) })
	}
	return rule
}

func (g *Maker) network() any {
	return g.one("0.0.0.0/0", "::/0", "10.1.0.0/30", "10.1.0.6/31", "fd00::/127", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.1/32", "2001:db8:1::/48")
}

func (g *Maker) protocol(named bool) object {
	if named && g.in(2) {
		return object{"destinationNamedPort": g.one("http", "dns")}
	}
	port := object{"number": []int64{53, 80, 81}[g.IntN(3)]}
	if g.in(3) {
		port = object{"range": object{"start": int64(53), "end": []int64{79, 80, 65535}[g.IntN(3)]}}
	}
	return object{g.one("tcp", "tcp", "udp", "sctp"): object{"destinationPort": port}}
}

func (g *Maker) labelSelector() metav1.LabelSelector {
	s := metav1.LabelSelector{}
	if g.in(2) {
		s.MatchLabels = map[string]string{g.one("app", "tier"): g.one("a", "b")}
	}
	return s
}

// np makes a NetworkPolicy, filled in as an API server does.
func (g *Maker) np(w *World, i int) *networkingv1.NetworkPolicy {
	np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: []string{"x", "y", "z"}[g.IntN(len(w.Namespaces))], Name: fmt.Sprint("np", i)}}
	np.Spec.PodSelector = g.labelSelector()
	np.Spec.PolicyTypes = [][]networkingv1.PolicyType{{networkingv1.PolicyTypeEgress}, {networkingv1.PolicyTypeEgress}, {networkingv1.PolicyTypeIngress}, {networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}}[g.IntN(4)]
	if len(np.Spec.PolicyTypes) == 2 {
		np.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
	}
	if np.Spec.PolicyTypes[0] == networkingv1.PolicyTypeIngress && len(np.Spec.PolicyTypes) == 1 {
		np.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
		return np
	}
	np.Spec.Egress = list(g.IntN(3), func() networkingv1.NetworkPolicyEgressRule {
		return networkingv1.NetworkPolicyEgressRule{To: list(g.IntN(3), g.peer), Ports: list(g.IntN(3), g.port)}
	})
	return np
}

func (g *Maker) peer() networkingv1.NetworkPolicyPeer {
	pods, spaces := g.labelSelector(), g.labelSelector()
	switch g.IntN(4) {
	case 0:
		return networkingv1.NetworkPolicyPeer{PodSelector: &pods}
	case 1:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: &spaces}
	case 2:
		return networkingv1.NetworkPolicyPeer{PodSelector: &pods, NamespaceSelector: &spaces}
	}
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.1.0.0/16", Except: []string{"10.1.0.2/31"}}}
}

func (g *Maker) port() networkingv1.NetworkPolicyPort {
	proto := corev1.Protocol(g.one("TCP", "TCP", "UDP", "SCTP"))
	p := networkingv1.NetworkPolicyPort{Protocol: &proto}
	switch number := intstr.FromInt32(int32(53 + g.IntN(2)*27)); g.IntN(4) {
	case 0:
	case 1:
		last := int32(80)
		p.Port, p.EndPort = &number, &last
	case 2:
		name := intstr.FromString(g.one("http", "dns"))
		p.Port = &name
	default:
		p.Port = &number
	}
	return p
}

// Flow makes a connection to an address of the cluster or outside of it, or through a Service to a pod.
func (g *Maker) Flow(w *World) (f Flow, ok bool) {
	f.From = w.Pods[g.IntN(len(w.Pods))]
	to := g.outside()
	switch g.IntN(4) {
	case 0, 1:
		p := w.Pods[g.IntN(len(w.Pods))]
		if p == f.From { // seldom itself
			p = w.Pods[g.IntN(len(w.Pods))]
		}
		to = p.IPs[g.IntN(len(p.IPs))]
	case 2:
		n := w.Nodes[g.IntN(len(w.Nodes))]
		to = n.IPs[g.IntN(len(n.IPs))]
	}
	f.Proto = []policy.Protocol{policy.TCP, policy.TCP, policy.UDP, policy.SCTP, ICMP}[g.IntN(5)]
	port := []uint16{53, 79, 80, 81, 9000}[g.IntN(5)]
	if f.Proto == ICMP {
		port = 0
	}
	f.Reached = netip.AddrPortFrom(to, port)
	if f.Dialled = f.Reached; f.Proto != ICMP && g.in(6) {
		service := netip.MustParseAddr(map[bool]string{true: "10.96.0.1", false: "fd00:96::1"}[to.Is4()])
		f.Dialled = netip.AddrPortFrom(service, 80)
	}
	has := false
	for _, a := range f.From.IPs {
		has = has || a.Is4() == to.Is4()
	}
	return f, has && !f.From.HostNetwork
}

// Perturb changes one value somewhere below.
func (g *Maker) Perturb(v any) any {
	odd := []any{int64(0), int64(-1), int64(70000), int64(443), "", "x", "Deny", "*.", "10.0.0.0/8", "10.9.0.0/8", []any{}, object{}, true}
	switch v := v.(type) {
	case object:
		if len(v) == 0 || g.in(6) {
			break
		}
		keys := slices.Sorted(maps.Keys(v))
		k := keys[g.IntN(len(keys))]
		switch g.IntN(6) {
		case 0:
			delete(v, k)
		case 1:
			v[g.one("domainNames", "networks", "tcp", "destinationNamedPort", "number", "priority")] = odd[g.IntN(len(odd))]
		default:
			v[k] = g.Perturb(v[k])
		}
		return v
	case []any:
		if len(v) == 0 || g.in(6) {
			break
		}
		if g.in(6) {
			return slices.Repeat(v, 1+25/len(v))
		}
		i := g.IntN(len(v))
		v[i] = g.Perturb(v[i])
		return v
	}
	return odd[g.IntN(len(odd))]
}
