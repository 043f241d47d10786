package cyclonus

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/mattfenwick/cyclonus/pkg/matcher"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
)

// world is a cluster at one moment, as both sides get it.
type world struct {
	namespaces map[string]map[string]string
	pods       []*policy.Pod
	// remote are the pods that the compiler gets as Input.Remote.
	remote   map[*policy.Pod]bool
	policies []*networkingv1.NetworkPolicy
	// ours are policies that the compiler has to leave out by itself.
	ours    []*networkingv1.NetworkPolicy
	selects selects
	// enforce: NetworkPolicies isolate by themselves, in both directions.
	enforce bool
}

// selects is which pods FQDNNetworkPolicies select.
type selects int

const (
	// limited are the pods that NetworkPolicies select for egress.
	limited selects = iota
	everyone
	nobody
)

// packet is the question: is one of this kind allowed?
type packet struct {
	protocol policy.Protocol
	port     uint16
}

const icmp policy.Protocol = 1

// protocols are the names that cyclonus compares; ICMP is in no policy.
var protocols = map[policy.Protocol]corev1.Protocol{
	policy.TCP: corev1.ProtocolTCP, policy.UDP: corev1.ProtocolUDP, policy.SCTP: corev1.ProtocolSCTP, icmp: "ICMP",
}

func (w *world) input() compile.Input {
	in := compile.Input{Namespaces: w.namespaces, NetworkPolicies: append(slices.Clone(w.policies), w.ours...), EnforceNetworkPolicies: w.enforce}
	for _, p := range w.pods {
		if w.remote[p] {
			in.Remote = append(in.Remote, p)
		} else {
			in.Pods = append(in.Pods, *p)
		}
	}
	switch w.selects {
	case nobody:
		return in
	case everyone:
		for ns := range w.namespaces {
			in.Policies = append(in.Policies, noNames(ns, "everyone", metav1.LabelSelector{}))
		}
		return in
	}
	for _, np := range w.policies {
		if hasEgress(np) {
			in.Policies = append(in.Policies, noNames(np.Namespace, np.Name, np.Spec.PodSelector))
		}
	}
	return in
}

// noNames is a policy without rules: its pods may open the connections that
// NetworkPolicies allow.
func noNames(namespace, name string, selector metav1.LabelSelector) *v1alpha1.FQDNNetworkPolicy {
	return &v1alpha1.FQDNNetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "namegate.io/v1alpha1", Kind: "FQDNNetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.FQDNNetworkPolicySpec{PodSelector: selector},
	}
}

func hasEgress(np *networkingv1.NetworkPolicy) bool {
	if len(np.Spec.PolicyTypes) == 0 {
		return len(np.Spec.Egress) > 0
	}
	return slices.Contains(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
}

// claimants returns the pods that have an address. A host-network pod and a finished one
// have none: to cyclonus they are outside the cluster.
func (w *world) claimants() map[netip.Addr][]*policy.Pod {
	out := map[netip.Addr][]*policy.Pod{}
	for _, p := range w.pods {
		if p.HostNetwork || p.Finished() {
			continue
		}
		for _, a := range p.IPs {
			out[a] = append(out[a], p)
		}
	}
	return out
}

// end is a pod at one end of connections, with what judges it there.
type end struct {
	pod     *policy.Pod
	view    *policy.View
	ingress bool // the pod is the destination, else the source
	// selecting are the names of the NetworkPolicies that select the pod for the direction, sorted.
	selecting []string
	// isolated: what no NetworkPolicy allows is denied.
	isolated bool
}

// traffic is every way in which cyclonus can be asked about one packet: for each pod that
// has the address of the other end, and each name of the port. One allowed way is enough.
func (w *world) traffic(e *end, a netip.Addr, claims []*policy.Pod, kind packet) (all []*matcher.Traffic) {
	own := w.peer(e.pod, e.pod.IPs[0])
	add := func(peer *matcher.TrafficPeer, ports []policy.NamedPort) {
		t := matcher.Traffic{Source: own, Destination: peer, ResolvedPort: int(kind.port), Protocol: protocols[kind.protocol]}
		if e.ingress {
			t.Source, t.Destination, ports = peer, own, e.pod.Ports
		}
		all = append(all, &t)
		for _, named := range ports {
			if named.Protocol == kind.protocol && named.Port == kind.port {
				byName := t
				byName.ResolvedPortName = named.Name
				all = append(all, &byName)
			}
		}
	}
	add(&matcher.TrafficPeer{IP: a.String()}, nil)
	for _, p := range claims {
		add(w.peer(p, a), p.Ports)
	}
	return all
}

func (w *world) peer(p *policy.Pod, a netip.Addr) *matcher.TrafficPeer {
	return &matcher.TrafficPeer{IP: a.String(), Internal: &matcher.InternalPeer{
		PodLabels: p.Labels, NamespaceLabels: w.namespaces[p.Namespace], Namespace: p.Namespace,
	}}
}

func (e *end) allows(m *matcher.Policy, traffic []*matcher.Traffic) bool {
	return slices.ContainsFunc(traffic, func(t *matcher.Traffic) bool { return m.IsIngressOrEgressAllowed(t, e.ingress).IsAllowed() })
}

// compare asks both sides everything about both directions of every local pod and returns the
// number of questions, and the differences.
func (w *world) compare(s *policy.Snapshot, n counts, outside []netip.Addr, kinds []packet) (asked int, wrong []string) {
	o := newOracle(w.policies, n)
	claims := w.claimants()
	addrs := slices.Clone(outside)
	for _, p := range w.pods {
		addrs = append(addrs, p.IPs...)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	addrs = slices.Compact(addrs)
	for _, pod := range w.pods {
		if w.remote[pod] || !pod.Local() || pod.HostNetwork || pod.Finished() {
			continue
		}
		ends, why := w.ends(o, s, pod)
		if why != "" {
			wrong = append(wrong, why)
		}
		for _, e := range ends {
			for _, a := range addrs {
				for _, kind := range kinds {
					asked++
					if what := w.ask(o, s, n, e, a, claims[a], kind); what != "" {
						wrong = append(wrong, what)
					}
				}
			}
		}
	}
	return asked, wrong
}

// ends returns a pod as the end of connections that its view judges, or why the view is not the pod's.
func (w *world) ends(o *oracle, s *policy.Snapshot, pod *policy.Pod) ([]*end, string) {
	v := s.ViewOf(pod.PodRef)
	out := &end{pod: pod, view: v, selecting: o.selecting(pod, false)}
	in := &end{pod: pod, view: v, selecting: o.selecting(pod, true), ingress: true}
	if !w.enforce {
		in.selecting = nil
	}
	out.isolated = w.selects == everyone || (w.enforce || w.selects == limited) && len(out.selecting) > 0
	in.isolated = len(in.selecting) > 0
	if got := v != nil; got != (out.isolated || in.isolated) {
		return nil, fmt.Sprintf("%s has a view: %v; NetworkPolicies that select it: %v, for ingress %v", pod, got, out.selecting, in.selecting)
	}
	if v == nil {
		return nil, ""
	}
	if !slices.Equal(v.NetworkPolicies, out.selecting) {
		return nil, fmt.Sprintf("%s is selected by %v; cyclonus: %v", pod, v.NetworkPolicies, out.selecting)
	}
	if (v.Ingress != nil) != in.isolated || in.isolated && !slices.Equal(v.Ingress.NetworkPolicies, in.selecting) {
		return nil, fmt.Sprintf("%s is selected for ingress by %+v; cyclonus: %v", pod, v.Ingress, in.selecting)
	}
	if !w.enforce {
		return []*end{out}, ""
	}
	return []*end{out, in}, ""
}

// ask returns "" or the two sides' results for one packet, to the address or from it.
func (w *world) ask(o *oracle, s *policy.Snapshot, n counts, e *end, a netip.Addr, claims []*policy.Pod, kind packet) string {
	traffic := w.traffic(e, a, claims, kind)
	var by []string
	for _, name := range e.selecting {
		if e.allows(o.alone[name], traffic) {
			by = append(by, name)
		}
	}
	want := !e.isolated || len(e.selecting) > 0 && e.allows(o.all, traffic)
	flow := policy.Flow{Protocol: kind.protocol, Reached: netip.AddrPortFrom(a, kind.port)}
	own := slices.Contains(e.view.Pod.IPs, a)
	evaluate, steps := policy.Evaluate, policy.Steps
	if e.ingress {
		flow.Source, flow.Reached = a, netip.AddrPortFrom(e.pod.IPs[0], kind.port)
		own = own && slices.Contains(e.view.Pod.IPs, e.pod.IPs[0])
		evaluate, steps = policy.EvaluateIngress, policy.StepsIngress
	}
	flow.Dialled = flow.Reached
	if own && !want {
		n[itself]++
		want = true
	}
	var got []string
	for _, step := range steps(e.view, s, &flow) {
		if step.Ports.Contains(kind.protocol, kind.port) {
			got = append(got, step.Rule.Policy)
		}
	}
	slices.Sort(got)
	got = slices.Compact(got)
	allowed, _ := evaluate(e.view, s, &flow)
	if slices.Equal(got, by) && allowed == want {
		return ""
	}
	var whose []string
	for _, p := range claims {
		whose = append(whose, p.String())
	}
	way := "to"
	if e.ingress {
		way = "from"
	}
	return fmt.Sprintf("%s %s %s (%s) %s/%d: allowed %v by %v; cyclonus: %v by %v", e.pod, way, a, strings.Join(whose, ", "), kind.protocol, kind.port, allowed, got, want, by)
}
