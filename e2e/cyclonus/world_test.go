package cyclonus

import (
	"fmt"
	"maps"
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
	in := compile.Input{Namespaces: w.namespaces, NetworkPolicies: append(slices.Clone(w.policies), w.ours...)}
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

// traffic is every way in which cyclonus can be asked about one packet: for each pod that
// has the address, and each name of the port. One allowed way is enough.
func (w *world) traffic(from *policy.Pod, to netip.Addr, claims []*policy.Pod, kind packet) []*matcher.Traffic {
	t := matcher.Traffic{Source: w.peer(from, from.IPs[0]), ResolvedPort: int(kind.port), Protocol: protocols[kind.protocol]}
	t.Destination = &matcher.TrafficPeer{IP: to.String()}
	outside := t
	all := []*matcher.Traffic{&outside}
	for _, p := range claims {
		inside := t
		inside.Destination = w.peer(p, to)
		all = append(all, &inside)
		for _, named := range p.Ports {
			if named.Protocol == kind.protocol && named.Port == kind.port {
				byName := inside
				byName.ResolvedPortName = named.Name
				all = append(all, &byName)
			}
		}
	}
	return all
}

func (w *world) peer(p *policy.Pod, a netip.Addr) *matcher.TrafficPeer {
	return &matcher.TrafficPeer{IP: a.String(), Internal: &matcher.InternalPeer{
		PodLabels: p.Labels, NamespaceLabels: w.namespaces[p.Namespace], Namespace: p.Namespace,
	}}
}

func allows(m *matcher.Policy, traffic []*matcher.Traffic) bool {
	return slices.ContainsFunc(traffic, func(t *matcher.Traffic) bool { return m.IsIngressOrEgressAllowed(t, false).IsAllowed() })
}

// compare asks both sides everything about every local pod and returns the number of
// questions, and the differences.
func (w *world) compare(s *policy.Snapshot, n counts, outside []netip.Addr, kinds []packet) (asked int, wrong []string) {
	o := newOracle(w.policies, n)
	claims := w.claimants()
	to := slices.Clone(outside)
	for _, p := range w.pods {
		to = append(to, p.IPs...)
	}
	slices.SortFunc(to, netip.Addr.Compare)
	to = slices.Compact(to)
	for _, from := range w.pods {
		if w.remote[from] || !from.Local() || from.HostNetwork || from.Finished() {
			continue
		}
		v := s.ViewOf(from.PodRef)
		selecting := w.selecting(o, from)
		if got := v != nil; got != (w.selects == everyone || w.selects == limited && len(selecting) > 0) {
			wrong = append(wrong, fmt.Sprintf("%s has a view: %v; NetworkPolicies that select it: %v", from, got, selecting))
		}
		if v == nil {
			continue
		}
		if !slices.Equal(v.NetworkPolicies, selecting) {
			wrong = append(wrong, fmt.Sprintf("%s is selected by %v; cyclonus: %v", from, v.NetworkPolicies, selecting))
			continue
		}
		for _, a := range to {
			for _, kind := range kinds {
				asked++
				if what := w.ask(o, s, v, from, a, claims[a], kind, selecting); what != "" {
					wrong = append(wrong, what)
				}
			}
		}
	}
	return asked, wrong
}

// selecting returns the names of the policies that select a pod for egress, sorted.
func (w *world) selecting(o *oracle, from *policy.Pod) []string {
	names := map[string]bool{}
	for _, target := range o.all.TargetsApplyingToPod(false, from.Namespace, from.Labels) {
		for _, np := range target.SourceRules {
			names[np.Namespace+"/"+np.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// ask returns "" or the two sides' results for one packet. A pod that no policy selects
// for egress has no rules, whatever cyclonus's result.
func (w *world) ask(o *oracle, s *policy.Snapshot, v *policy.View, from *policy.Pod, a netip.Addr, claims []*policy.Pod, kind packet, selecting []string) string {
	flow := policy.Flow{Protocol: kind.protocol, Reached: netip.AddrPortFrom(a, kind.port), Would: true}
	traffic := w.traffic(from, a, claims, kind)
	var by []string
	want := len(selecting) > 0 && allows(o.all, traffic)
	if want {
		for _, name := range selecting {
			if allows(o.alone[name], traffic) {
				by = append(by, name)
			}
		}
	}
	var got []string
	for _, step := range policy.Steps(v, s, &flow) {
		if step.Ports.Contains(kind.protocol, kind.port) {
			got = append(got, step.Rule.Policy)
		}
	}
	slices.Sort(got)
	got = slices.Compact(got)
	if slices.Equal(got, by) && want == (len(got) > 0) {
		return ""
	}
	var whose []string
	for _, p := range claims {
		whose = append(whose, p.String())
	}
	return fmt.Sprintf("%s to %s (%s) %s/%d: allowed by %v; cyclonus: by %v", from, a, strings.Join(whose, ", "), kind.protocol, kind.port, got, by)
}
