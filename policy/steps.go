package policy

import (
	"iter"
	"net/netip"
	"slices"
)

// Step is a rule that matches a flow on some port.
type Step struct {
	Rule  *Rule
	Ports PortSet // on which it matches
	Asked bool    // they hold a port that the flow asks for
}

// Steps returns the rules that match a flow on some port, in the order in which Evaluate
// asks them. Port 0 of the flow asks for every port of its protocol, and with AnyProtocol of
// every protocol. Where the address that is reached is not known, rules with peers may match. Of a view of the node they
// are the rules that EvaluateNode asks.
func Steps(v *View, in *Snapshot, f *Flow) (steps []Step) {
	switch {
	case v == nil:
		return nil
	case v.Node != nil && v.Traffic != nil:
		for _, s := range f.nodeSteps() {
			at, rules := v.list(s, in, f)
			steps = append(steps, at.steps(rules, in)...)
		}
		return steps
	}
	second := v.Rules.Baseline
	if v.tiers(f.Would).isolated {
		second = slices.Concat(v.Rules.NamespaceDeny, v.Rules.Namespace, v.Rules.NamespaceChecked)
	}
	return f.steps(slices.Concat(v.Rules.Admin, second), in)
}

// StepsIngress is Steps for EvaluateIngress. Where the source is not known, every rule may match.
func StepsIngress(v *View, in *Snapshot, f *Flow) (steps []Step) {
	if v == nil || v.Ingress == nil {
		return nil
	}
	second := v.Ingress.Baseline
	if len(v.Ingress.NetworkPolicies) > 0 {
		second = v.Ingress.Namespace
	}
	return f.steps(slices.Concat(v.Ingress.Admin, second), in)
}

func (f *Flow) steps(rules []*Rule, in *Snapshot) (steps []Step) {
	for _, r := range rules {
		if r.Audit && !f.Would {
			continue
		}
		at := f.Reached
		if r.Peer.Kind == PeerNames {
			at = f.Dialled
		}
		if ports := f.ports(r, in); ports != "" {
			steps = append(steps, Step{r, ports, ports.meets(f.Protocol, at.Port())})
		}
	}
	return steps
}

// meets tells whether the set holds a port that may be left open: AnyProtocol stands for
// every protocol, port 0 for every port of one.
func (s PortSet) meets(p Protocol, port uint16) bool {
	if port != 0 {
		return s.Contains(p, port)
	}
	return slices.ContainsFunc(s.Ranges(), func(r PortRange) bool {
		return p == AnyProtocol || r.Protocol == AnyProtocol || r.Protocol == p
	})
}

// ports returns the ports on which a rule matches a flow, "" for none.
func (f *Flow) ports(r *Rule, in *Snapshot) PortSet {
	a := CleanAddr(f.peer(r))
	set := in.PeerSet(r.Peer)
	switch {
	case r.Broken && r.Action != Accept:
		return AnyPort
	case !r.Broken && r.Peer.Kind == PeerNames && f.live(r),
		!r.Broken && r.Peer.Kind != PeerNames && (r.Peer.Kind == PeerAnywhere || !a.IsValid()):
		return r.Ports
	case r.Broken || set == nil:
		return ""
	case set.Kind == PeerPorts:
		var own []PortRange
		for _, p := range set.Ports {
			if p.Addr == a {
				own = append(own, PortRange{p.Protocol, p.Port, p.Port})
			}
		}
		return NewPortSet(own...)
	case set.Contains(a, AnyProtocol, 0):
		return r.Ports
	}
	return ""
}

// unnamed stands for the protocols that no port set has a word for: it is reserved. Source:
// https://www.iana.org/assignments/protocol-numbers.
const unnamed Protocol = 255

// Flows yields a flow for each range of ports on which EvaluateAny says the same, of all
// that f asks for as Steps has it. The ports of earlier steps come first.
func Flows(v *View, in *Snapshot, f Flow) iter.Seq[*Flow] {
	return func(yield func(*Flow) bool) {
		if f.Dialled.Port() != 0 {
			yield(&f)
			return
		}
		steps := append(Steps(v, in, &f), Step{Ports: AnyPort})
		begins, stopped := f.begins(steps), false
		for _, s := range steps {
			begins = slices.DeleteFunc(begins, func(at PortRange) bool {
				if stopped || !s.Ports.Contains(at.Protocol, at.First) {
					return false
				}
				g := f
				g.Protocol, g.Dialled, g.Reached = at.Protocol, netip.AddrPortFrom(f.Dialled.Addr(), at.First), netip.AddrPortFrom(f.Reached.Addr(), at.First)
				stopped = !yield(&g)
				return true
			})
			if stopped {
				return
			}
		}
	}
}

// begins returns the first port of each range on which the same steps match, by protocol.
func (f *Flow) begins(steps []Step) (out []PortRange) {
	protocols := []Protocol{f.Protocol}
	if f.Protocol == AnyProtocol {
		protocols = []Protocol{TCP, UDP, SCTP, unnamed}
	}
	for _, p := range protocols {
		begins := []uint16{0}
		for _, s := range steps {
			for _, r := range s.Ports.Ranges() {
				if r.Protocol == p {
					begins = append(begins, r.First, r.Last+1) // 0 behind the last
				}
			}
		}
		slices.Sort(begins)
		for _, b := range slices.Compact(begins) {
			out = append(out, PortRange{p, b, b})
		}
	}
	return out
}

// EvaluateAny is Evaluate, or EvaluateNode of a view of the node, for the ports that a flow asks for as Steps has it: one that is
// allowed is enough. by is the rule of the first that is, else of the first that is checked, else of the first that is
// denied by a rule.
func EvaluateAny(v *View, in *Snapshot, f Flow) (allowed bool, by *Rule) {
	evaluate := Evaluate
	if v != nil && v.Node != nil {
		evaluate = EvaluateNode
	}
	for g := range Flows(v, in, f) {
		ok, r := evaluate(v, in, g)
		if ok {
			return true, r
		}
		if by == nil || VerdictOf(false, by) == DenyFlow && VerdictOf(false, r) == CheckFlow {
			by = r
		}
	}
	return false, by
}
