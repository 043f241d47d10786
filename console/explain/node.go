package explain

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/policy"
)

// ofNode tells whether the question is about a node itself.
func (in *inquiry) ofNode() bool { return in.f.Pod.Namespace == "" }

// undenied answers for destinations of a node that no rule denies: its own addresses and failsafes. It
// notes the table of failsafes beside the answer about another.
func (in *inquiry) undenied() bool {
	v, a := in.f.View, in.to.Addr
	if !in.ofNode() || v == nil || v.Node == nil || !a.IsValid() {
		return false
	}
	if a.IsLoopback() || slices.Contains(v.Node.Addrs, policy.CleanAddr(a)) {
		in.said.Verdict, in.said.Reason = Allowed, a.String()+" is the node's own address: what it sends there never leaves it"
		return true
	}
	f := in.blank(a)
	f.Reached = netip.AddrPortFrom(a, in.to.Port)
	if s := v.Failsafe(&f, in.f.Snapshot); s != nil {
		in.said.Verdict, in.said.Reason = Allowed, "failsafe "+s.Name+": "+s.PortText()+": no rule denies it"
		return true
	}
	in.said.Interface = f.Out
	in.failsafes()
	return false
}

// failsafes notes the table of failsafes.
func (in *inquiry) failsafes() {
	for _, row := range console.FailsafesOf(in.f.View.Node).Rows {
		in.note("failsafe %s", row)
	}
}

// route returns the interface by which the node reaches an address.
func (in *inquiry) route(a netip.Addr) string {
	if in.f.Route == nil {
		return policy.AnyInterface
	}
	return cmp.Or(in.f.Route(a), policy.AnyInterface)
}

// leavesBy is route of what the node that is asked about sends, "" of pods.
func (in *inquiry) leavesBy(a netip.Addr) string {
	if !in.ofNode() || !a.IsValid() {
		return ""
	}
	return in.route(a)
}

// toNode answers whether connections from the source reach the node itself: of each of its addresses, the strictest.
func (in *inquiry) toNode() {
	v, s := in.f.View, in.from
	if v == nil {
		in.settle(Allowed, "no policy selects the pod: everything is allowed")
		return
	}
	in.selecting()
	if s.OfNode {
		in.settle(Allowed, "what the node sends to itself passes by the loopback interface: no rule is asked")
		return
	}
	for _, from := range s.Addrs {
		at := slices.IndexFunc(v.Node.Addrs, func(a netip.Addr) bool { return a.Is4() == from.Is4() && a.IsGlobalUnicast() })
		if at < 0 {
			continue
		}
		f := policy.Flow{Protocol: in.to.At(from).Protocol, Source: from, Dialled: netip.AddrPortFrom(v.Node.Addrs[at], in.to.Port), In: in.route(from)}
		f.Reached = f.Dialled
		if in.said.Verdict == Denied || in.fromAddress(&f) {
			return
		}
	}
	if in.said.Verdict == "" {
		in.settle(Unknown, "%s has no address of a family of the pod's", s.Text)
	}
}

// fromAddress answers for one address of the source, and tells whether that is the whole answer.
func (in *inquiry) fromAddress(f *policy.Flow) (ends bool) {
	v, snap, verdict := in.f.View, in.f.Snapshot, Allowed
	would := *f
	would.Would = true
	allowed, by := policy.EvaluateAny(v, snap, *f)
	if passes, r := policy.EvaluateAny(v, snap, would); !allowed {
		verdict = Denied
	} else if !passes {
		verdict, by, *f = WouldDeny, r, would
	}
	steps := policy.Steps(v, snap, f)
	in.listSteps(slices.Clone(steps), listed{addr: f.Source, known: true}, true, by)
	if slices.Contains(in.f.Unknown, f.Source) {
		g := *f
		g.Source = netip.Addr{}
		if unknown := byNetwork(steps, policy.Steps(v, snap, &g), allowed, by); unknown != nil {
			in.unknownAddress(in.from.Text, unknown)
			return true
		}
	}
	if in.said.Verdict != "" && verdict == Allowed {
		return false
	}
	in.source, in.said.Interface = f.Source, f.In
	switch safe := v.Failsafe(f, snap); {
	case verdict == Denied:
		in.overruled(in.from.Text, by)
		in.failsafes()
	case verdict == WouldDeny:
		in.settle(verdict, "only an Audit policy denies it, so it passes; enforced, it would be denied: %s denies %s", in.ruleText(by), in.from.Text)
	case safe != nil:
		in.settle(verdict, "failsafe %s: %s: no rule denies it", safe.Name, safe.PortText())
	case by != nil:
		in.settle(verdict, "%s allows %s", in.ruleText(by), in.from.Text)
	default:
		in.settle(verdict, "no rule of a policy for nodes denies %s", in.from.Text)
	}
	if in.to.Port >= firstNodePort && in.to.Port <= lastNodePort {
		in.note("if %s is a NodePort, the node forwards: rules of BeforeNAT are asked about it, and those of Local are not; explain POD --from %s asks about what is behind", in.to.portText(), in.from.Text)
	}
	return false
}

// The NodePorts of Services, by default. Source: https://kubernetes.io/docs/concepts/services-networking/service/.
const firstNodePort, lastNodePort = 30000, 32767

// maxForwarded bounds the connections of a pod that rules of the node are asked about.
const maxForwarded = 64

// forwarded answers where rules of the node deny connections of or to the pod: policies for pods do not
// change that.
func (in *inquiry) forwarded() {
	v, asked, denied := in.f.Snapshot.Node(), 0, 0
	if v == nil || v.Traffic == nil || in.f.Unresolved || in.ofNode() || !in.f.Pod.Local() || in.f.Pod.HostNetwork || in.said.Verdict == Denied {
		return
	}
	var by *policy.Rule
	for f := range in.throughNode(v) {
		if asked++; asked > maxForwarded {
			break
		}
		if allowed, r := policy.EvaluateAny(v, in.f.Snapshot, f); !allowed {
			denied, by = denied+1, cmp.Or(by, r)
		}
	}
	switch {
	case denied == 0:
	case denied < min(asked, maxForwarded):
		in.note("%s denies some of the connections on the node", in.ruleText(by))
	default:
		in.said.Verdict, in.said.Reason, in.said.Advice = Denied, fmt.Sprintf("%s denies it on the node; of policies for pods: %s", in.ruleText(by), in.said.Reason), nil
		in.do("no policy for pods changes that: ask who administers the cluster's policies")
	}
}

// throughNode yields the connections of the question as they pass the node.
func (in *inquiry) throughNode(v *policy.View) iter.Seq[policy.Flow] {
	return func(yield func(policy.Flow) bool) {
		for _, own := range in.f.Pod.IPs {
			if in.from != nil {
				for _, from := range in.from.Addrs {
					to := netip.AddrPortFrom(own, in.to.Port)
					f := policy.Flow{Protocol: in.to.At(own).Protocol, Source: from, Dialled: to, Reached: to, In: in.route(from), Out: in.route(own)}
					if own.Is4() == from.Is4() && !in.from.OfNode && !yield(f) {
						return
					}
				}
				continue
			}
			for f := range in.dialledFlows() {
				reached := f.Reached.Addr()
				if f.Source, f.In = own, in.route(own); !slices.Contains(v.Node.Addrs, reached) {
					f.Out = in.route(reached)
				}
				if own.Is4() == reached.Is4() && !slices.Contains(in.f.Pod.IPs, reached) && !yield(f) {
					return
				}
			}
		}
	}
}

// dialledFlows yields the connections of the pod to what is asked for, behind Services to each pod. The agent answers
// queries to resolvers.
func (in *inquiry) dialledFlows() iter.Seq[policy.Flow] {
	return func(yield func(policy.Flow) bool) {
		addrs := []netip.Addr{in.to.Addr}
		if !in.to.Addr.IsValid() {
			addrs = in.addressesOf(in.to.Name)
		}
		for _, a := range addrs {
			f := policy.Flow{Protocol: in.to.At(a).Protocol, Dialled: netip.AddrPortFrom(a, in.to.Port)}
			f.Reached = f.Dialled
			ends := []end{{Flow: f}}
			if s := in.f.Services[a]; s != nil {
				ends = nil
				for p := range in.podsOf(s) {
					for _, ip := range p.IPs {
						ends = append(ends, endsAt(f, in.asked(s), p, ip)...)
					}
				}
			}
			if a.IsLoopback() || in.isDNS() && slices.Contains(in.f.Resolvers, a) {
				ends = nil
			}
			for _, e := range ends {
				if !yield(e.Flow) {
					return
				}
			}
		}
	}
}

// nodeWords puts the answer about a node into words of nodes. Advice for it is about cluster policies.
func (in *inquiry) nodeWords() {
	if !in.ofNode() {
		return
	}
	words := func(text string) string { return strings.ReplaceAll(text, "the pod", "the node") }
	in.said.Reason = words(in.said.Reason)
	for i := range in.said.Notes {
		in.said.Notes[i] = words(in.said.Notes[i])
	}
	in.said.Advice = nil
	if in.said.Verdict == Denied || in.said.Verdict == WouldDeny {
		match := "matches: [{name: " + in.to.Name.String() + "}]"
		if a := cmp.Or(in.source, in.to.Addr); a.IsValid() {
			match = "networks: [" + netip.PrefixFrom(a, a.BitLen()).String() + "]"
		}
		if in.from != nil && in.from.Pod != nil && !in.from.Pod.HostNetwork {
			match = "pods: {namespaceSelector: {matchLabels: {" + corev1.LabelMetadataName + ": " + in.from.Pod.Namespace + "}}}"
		}
		in.do("to allow it, write a rule of a NodeNetworkPolicy before the rule that denies it: - {action: Accept, %s}; `namegate check --node` tries it", match)
	}
}
