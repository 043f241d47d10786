package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/netpol"
)

// Source is where connections to a pod come from.
type Source struct {
	Text  string       // as it is asked for
	Addrs []netip.Addr // by which connections reach the pod
	// OfNode: it is a process of the pod's node.
	OfNode bool
	Pod    *policy.Pod // there, nil where none is known
	Inside string      // as of Facts
}

// From is the source of connections to a pod as a question names it.
type From struct {
	Addr netip.Addr
	Node string
	// Namespace and Name are a pod's; Namespace is "" for that of the pod that is reached.
	Namespace, Name string
}

// ParseFrom reads an address, node/NODE, NAMESPACE/NAME or NAME. The error says what to write instead.
func ParseFrom(s string) (f From, err error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return From{Addr: policy.CleanAddr(a)}, nil
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		return f, fmt.Errorf("%q is a network; write one address of it, such as %s", s, p.Addr())
	}
	f.Namespace, f.Name, _ = strings.Cut(s, "/")
	switch bare := !strings.Contains(s, "/"); {
	case f.Namespace == "" || !bare && f.Name == "" || strings.Contains(f.Name, "/"):
		return f, fmt.Errorf("%q is no source; write an address, NAMESPACE/NAME or NAME of a pod, or node/NODE", s)
	case bare:
		return From{Name: f.Namespace}, nil
	case f.Namespace == "node":
		return From{Node: f.Name}, nil
	}
	return f, nil
}

// ParsePort reads the port of a question from a source: PORT, PORT/PROTOCOL or PROTOCOL, "" for every port.
func ParsePort(s string) (t Target, err error) {
	port, protocol, both := strings.Cut(s, "/")
	if n, err := strconv.ParseUint(port, 10, 16); err == nil && n > 0 {
		t.Port, t.Protocol = uint16(n), policy.TCP
	} else if protocol = port; both || s != "" && protocols[strings.ToLower(s)] == policy.AnyProtocol {
		return t, fmt.Errorf("%q is no port; write 1 to 65535, and /udp or /sctp behind it unless it is of TCP; or icmp", s)
	}
	if protocol != "" || both {
		if t.Protocol, err = t.protocol(protocol); err != nil {
			return t, fmt.Errorf("%q: %w", s, err)
		}
	}
	return t, nil
}

// portText writes what ParsePort reads.
func (t Target) portText() string {
	switch {
	case t.Port != 0:
		return strconv.Itoa(int(t.Port)) + "/" + protocolWord(t.Protocol)
	case t.Protocol != policy.AnyProtocol:
		return protocolWord(t.Protocol)
	}
	return ""
}

// fromSource answers whether connections from the source reach the pod.
func (in *inquiry) fromSource() {
	v, s := in.f.View, in.from
	isolating := in.isolating()
	switch p := &in.f.Pod; {
	case in.ofNode():
		in.toNode()
	case !p.Local():
		in.said.Verdict, in.said.Reason = Elsewhere, fmt.Sprintf("the pod runs on the node %s, whose agent knows; ask that one", p.NodeName)
	case p.HostNetwork:
		in.said.Verdict, in.said.Reason = Allowed, "the pod uses the host network: no policy for pods holds for it"
	case s.OfNode:
		in.said.Verdict, in.said.Reason = Allowed, "processes of the pod's node always reach it, as the kubelet's probes have to"
	case v != nil && v.Ingress != nil && p.PodRef == p.Orphan():
		in.said.Verdict, in.said.Reason = Denied, "the pod has no object any more: nothing may reach it"
	case len(in.f.Contested) > 0:
		in.said.Verdict, in.said.Reason = Unknown, fmt.Sprintf("other pods claim %s too, and connections to them cannot be distinguished", in.f.Contested[0])
	case v == nil || v.Ingress == nil:
		in.said.Verdict, in.said.Reason = Allowed, "no policy in force has rules for connections to the pod"
		if len(isolating) > 0 {
			in.note("the NetworkPolicy %s isolates the pod for ingress, and Namegate does not enforce that (networkPolicy.enforce: Selected): another engine may", isolating[0].Namespace+"/"+isolating[0].Name)
		}
	default:
		in.selectingIngress()
		in.evaluateIngress(isolating)
	}
}

// isolating returns the NetworkPolicies that isolate the pod for ingress.
func (in *inquiry) isolating() []*networkingv1.NetworkPolicy {
	return slices.DeleteFunc(slices.Clone(in.f.NetworkPolicies), func(p *networkingv1.NetworkPolicy) bool {
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		egressOnly := len(p.Spec.PolicyTypes) > 0 && !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
		return err != nil || egressOnly || netpol.Ignored(p) || !selector.Matches(labels.Set(in.f.Pod.Labels))
	})
}

// selectingIngress lists the policies with rules for connections to the pod.
func (in *inquiry) selectingIngress() {
	for r := range in.f.View.Ingress.Cluster() {
		in.selectedBy(r)
	}
	in.said.NetworkPolicies = in.f.View.Ingress.NetworkPolicies
}

// evaluateIngress answers by the rules for connections to the pod: of each address of the source, to the pod's of
// that family.
func (in *inquiry) evaluateIngress(isolating []*networkingv1.NetworkPolicy) {
	s, v := in.from, in.f.View
	var denied netip.Addr
	var by, deniedBy, unknown *policy.Rule
	asked := 0
	for _, from := range s.Addrs {
		at := slices.IndexFunc(in.f.Pod.IPs, func(a netip.Addr) bool { return a.Is4() == from.Is4() })
		if at < 0 {
			continue
		}
		f := policy.Flow{Protocol: in.to.At(from).Protocol, Source: from, Reached: netip.AddrPortFrom(in.f.Pod.IPs[at], in.to.Port)}
		f.Dialled = f.Reached
		allowed, rule := in.listIngress(&f)
		if asked++; slices.Contains(in.f.Unknown, from) {
			known := policy.StepsIngress(v, in.f.Snapshot, &f)
			f.Source = netip.Addr{}
			unknown = byNetwork(known, policy.StepsIngress(v, in.f.Snapshot, &f), allowed, rule)
		}
		switch {
		case !allowed && !denied.IsValid():
			denied, deniedBy = from, rule
		case allowed:
			by = cmp.Or(by, rule)
		}
	}
	if asked == 0 {
		in.said.Verdict, in.said.Reason = Unknown, fmt.Sprintf("%s has no address of a family of the pod's", s.Text)
		return
	}
	switch {
	case unknown != nil:
		in.unknownAddress(s.Text, unknown)
	case denied.IsValid():
		in.deniedIngress(denied, deniedBy, isolating)
	case by == nil && len(v.Ingress.NetworkPolicies) > 0:
		in.said.Verdict, in.said.Reason = Allowed, s.Text+" is the pod itself, which it may always reach"
	case by == nil:
		in.said.Verdict, in.said.Reason = Allowed, fmt.Sprintf("no rule of a cluster policy denies %s, and no NetworkPolicy isolates the pod for ingress", s.Text)
	default:
		in.said.Verdict, in.said.Reason = Allowed, fmt.Sprintf("%s allows %s", in.peerRuleText(by), s.Text)
	}
	if s.Inside == "node" {
		in.note("%s is a node's address: connections by a NodePort or a load balancer with externalTrafficPolicy: Cluster have that of the node where they enter", s.Addrs[0])
	}
	if s.Pod != nil && s.Pod.Local() && !s.Pod.HostNetwork && !in.f.Unresolved && in.sees(s.Pod.Namespace) {
		to := Target{Addr: in.f.Pod.IPs[0], Protocol: in.to.Protocol, Port: in.to.Port}
		in.note("the rules of %s for egress are asked before: explain %s %s", s.Pod, s.Pod, to)
	}
}

// listIngress lists the rules that match a connection from the source, and evaluates it.
func (in *inquiry) listIngress(f *policy.Flow) (allowed bool, by *policy.Rule) {
	steps := policy.StepsIngress(in.f.View, in.f.Snapshot, f)
	allowed, by = evaluateAny(in.f.View, in.f.Snapshot, *f, steps)
	at := listed{addr: f.Source, known: true}
	if p := in.from.Pod; p != nil && in.sees(p.Namespace) {
		at.pod = p.String()
	}
	in.listSteps(steps, at, len(in.f.View.Ingress.Admin)+len(in.f.View.Ingress.Baseline) > 0, by)
	return allowed, by
}

// deniedIngress answers for a source that is denied.
func (in *inquiry) deniedIngress(from netip.Addr, by *policy.Rule, isolating []*networkingv1.NetworkPolicy) {
	what := in.from.Text
	if len(in.from.Addrs) > 1 {
		what += " (" + from.String() + ")"
	}
	if by != nil {
		in.overruled(what, by)
		return
	}
	if in.from.Pod == nil && in.from.Inside == "" && in.f.OtherPods != "" && slices.ContainsFunc(in.f.View.Ingress.Namespace, func(r *policy.Rule) bool { return r.Peer.Kind == policy.PeerPods }) {
		in.said.Verdict, in.said.Reason = Unknown, fmt.Sprintf("whether %s is a pod that NetworkPolicies allow is unknown: %s", from, in.f.OtherPods)
		return
	}
	in.said.Verdict, in.said.Reason = Denied, "NetworkPolicies isolate the pod for ingress, and "+in.unallowed(what, from)
	at := slices.IndexFunc(isolating, func(p *networkingv1.NetworkPolicy) bool {
		return slices.Contains(in.f.View.Ingress.NetworkPolicies, p.Namespace+"/"+p.Name)
	})
	if to, ok := in.sourcePeer(from); ok && at >= 0 {
		in.writeIngress(to, isolating[at])
	}
}

// unallowed says that the listed rules do not allow an address, which they have unless it is unknown.
func (in *inquiry) unallowed(what string, a netip.Addr) string {
	if at := slices.IndexFunc(in.said.Peers, func(p Peer) bool { return p.Address == "" || p.Address == a.String() }); at >= 0 {
		return fmt.Sprintf("they allow %s on %s, and not%s", what, in.said.Peers[at].Ports, in.to.onPort())
	}
	return "none of their rules allows " + what
}

// sourcePeer returns what a NetworkPolicy has to allow.
func (in *inquiry) sourcePeer(from netip.Addr) (to destination, ok bool) {
	if p := in.from.Pod; p != nil && !p.HostNetwork {
		return in.peerPod(p)
	}
	if (in.f.OtherPods != "" || in.f.OtherNamespaces != nil) && in.from.Inside == "" {
		in.do("if %s is a pod's, allow that by its labels: pods of other nodes are not all known here", from)
	}
	block := &networkingv1.IPBlock{CIDR: netip.PrefixFrom(from, from.BitLen()).String()}
	return destination{networkingv1.NetworkPolicyPeer{IPBlock: block}, in.networkPorts(), strings.ReplaceAll(from.String(), ":", "-"), true}, true
}

// writeIngress writes the NetworkPolicy that allows a source to the pods of one that isolates the pod.
func (in *inquiry) writeIngress(from destination, isolating *networkingv1.NetworkPolicy) {
	written := in.writeSpec("from-"+from.name, networkingv1.NetworkPolicySpec{
		PodSelector: *isolating.Spec.PodSelector.DeepCopy(), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{from.peer}, Ports: from.ports}},
	})
	if written {
		in.do("apply the NetworkPolicy below, for the pods that %s/%s isolates: NetworkPolicies add up", isolating.Namespace, isolating.Name)
	}
}

// evaluateAny evaluates a connection to the pod: one port that is allowed is enough, where none is asked for.
func evaluateAny(v *policy.View, snap *policy.Snapshot, f policy.Flow, steps []policy.Step) (allowed bool, by *policy.Rule) {
	if f.Reached.Port() != 0 {
		return policy.EvaluateIngress(v, snap, &f)
	}
	for _, s := range append(steps, policy.Step{Ports: policy.AnyPort}) {
		for _, p := range s.Ports.Ranges() {
			g := f
			if g.Protocol = cmp.Or(f.Protocol, p.Protocol); p.Protocol != policy.AnyProtocol && p.Protocol != g.Protocol {
				continue
			}
			for _, begin := range []uint16{p.First, p.Last + 1} { // of ports on which the same rules match; 0 behind the last
				g.Reached = netip.AddrPortFrom(f.Reached.Addr(), begin)
				ok, r := policy.EvaluateIngress(v, snap, &g)
				if ok {
					return true, r
				}
				by = cmp.Or(by, r)
			}
		}
	}
	return false, by
}
