package policy

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Node is the node as a subject: its policies judge what its own sockets send, those of pods in
// its network namespace among them. It is immutable.
type Node struct {
	Name   string
	Labels map[string]string
	// Addrs are its own addresses, sorted.
	Addrs []netip.Addr
	// Interfaces are those of rules that name none: with an address of the Node's status or a default
	// route, sorted.
	Interfaces []string
	// Failsafes come before the rules.
	Failsafes []Failsafe
	// Missing tells which failsafes are not known, "" for none. While there are such, the node accepts
	// no policies.
	Missing string
}

// Traffic is the traffic that rules for the node are about.
type Traffic uint8

// The kinds of traffic.
const (
	// Local is connections of and to the sockets of the node, by their first packets.
	Local Traffic = iota
	// Forwarded is connections that the node forwards, by their first packets.
	Forwarded
	// BeforeNAT is the first packets of connections that arrive, before Services are translated.
	BeforeNAT
	// Untracked is packets of and to the node before connection tracking.
	Untracked
)

// String returns the word of the API.
func (t Traffic) String() string {
	return [...]string{"Local", "Forwarded", "BeforeNAT", "Untracked"}[t]
}

// TrafficRules are the rules for a node by traffic, each list in order. The tier Admin of a rule means
// nothing.
type TrafficRules struct{ Local, Forwarded, BeforeNAT, Untracked Directions }

// Directions are the rules for one traffic: for what arrives, and for what leaves.
type Directions struct{ Ingress, Egress []*Rule }

// Of returns the rules for one traffic.
func (r *TrafficRules) Of(t Traffic) *Directions {
	return [...]*Directions{&r.Local, &r.Forwarded, &r.BeforeNAT, &r.Untracked}[t]
}

// All yields every rule.
func (r *TrafficRules) All() iter.Seq[*Rule] {
	return func(yield func(*Rule) bool) {
		for t := Local; t <= Untracked; t++ {
			for _, rules := range [][]*Rule{r.Of(t).Ingress, r.Of(t).Egress} {
				for _, rule := range rules {
					if !yield(rule) {
						return
					}
				}
			}
		}
	}
}

// NodeRef returns the reference of a node. No pod has it.
func NodeRef(name string) PodRef { return PodRef{Name: name} }

// NodeSubjects stand for the node in grants of its names, whatever address a packet comes from. No
// pod has them.
var NodeSubjects = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// loopback is the interface whose packets no rule judges.
const loopback = "lo"

// EvaluateNode tells whether the rules of a view of the node let the first packet of a connection pass, and by
// which: nil for a default, and if no rule is asked. A flow without In begins at a socket of the node, and one with In
// and without Out ends at one. The others are forwarded, and pods' own policies have their say beside it. A flow that an
// Untracked rule accepts is not translated: it goes to what is dialled.
func EvaluateNode(v *View, in *Snapshot, f *Flow) (allowed bool, by *Rule) {
	if v == nil || v.Traffic == nil || f.Exempt || f.In == loopback || f.Out == loopback {
		return true, nil
	}
	for _, s := range f.nodeSteps() {
		switch action, r := v.asked(s, in, f); {
		case action == Deny:
			return false, r
		case action == Accept:
			if by = r; s.traffic != Forwarded { // of which both lists are asked
				return true, by
			}
		}
	}
	return true, by
}

// EvaluateTraffic is EvaluateNode for the rules of one traffic and direction alone, which a flow has come to.
func EvaluateTraffic(v *View, in *Snapshot, f *Flow, t Traffic, ingress bool) (allowed bool, by *Rule) {
	action, by := v.asked(nodeStep{t, ingress}, in, f)
	return action != Deny, by
}

// Arrives tells whether the rules of a view of the node let what it forwards come, as EvaluateNode asks them before those for
// what leaves.
func Arrives(v *View, in *Snapshot, f *Flow) bool {
	if v == nil || v.Traffic == nil {
		return true
	}
	for _, traffic := range []Traffic{BeforeNAT, Forwarded} {
		if action, _ := v.asked(nodeStep{traffic, true}, in, f); action != Pass {
			return action == Accept
		}
	}
	return true
}

// nodeStep is one list of rules that EvaluateNode asks.
type nodeStep struct {
	traffic Traffic
	ingress bool
}

// The lists of what leaves, arrives, and is forwarded, in order.
var (
	nodeEgress    = [...]nodeStep{{traffic: Untracked}, {traffic: Local}}
	nodeIngress   = [...]nodeStep{{Untracked, true}, {BeforeNAT, true}, {Local, true}}
	nodeForwarded = [...]nodeStep{{Untracked, true}, {BeforeNAT, true}, {Forwarded, true}, {traffic: Forwarded}}
)

// nodeSteps are the lists that EvaluateNode asks about a flow, in order.
func (f *Flow) nodeSteps() []nodeStep {
	switch {
	case f.In == "":
		return nodeEgress[:]
	case f.Out == "":
		return nodeIngress[:]
	}
	return nodeForwarded[:]
}

// asked returns what one list says of a flow, Pass where no rule hits.
func (v *View) asked(s nodeStep, in *Snapshot, f *Flow) (Action, *Rule) {
	at, rules := v.list(s, in, f)
	action, r := at.ordered(rules, in)
	if s.traffic == Untracked && action == Accept && v.answers(&at, in) { // it stays tracked
		return Pass, nil
	}
	return action, r
}

// list returns the rules of one list that are asked about a flow, and the flow as they see it.
func (v *View) list(s nodeStep, in *Snapshot, f *Flow) (at Flow, rules []*Rule) {
	at = *f
	if s.traffic == Untracked || s.traffic == BeforeNAT { // Services are not yet translated
		at.Reached = f.Dialled
	}
	toNode, pod := v.owns(at.Dialled.Addr()), f.Dialled.Addr()
	rules = v.Rules.Admin
	switch {
	case s.ingress:
		rules, pod = v.Traffic.Of(s.traffic).Ingress, f.Source
	case s.traffic != Local:
		rules = v.Traffic.Of(s.traffic).Egress
	}
	switch {
	case len(rules) == 0, s.traffic == Untracked && (s.ingress != toNode || in.isLocal(pod)):
		return at, nil
	case s == nodeStep{traffic: Local} && v.owns(cmp.Or(f.Reached, f.Dialled).Addr()):
		return at, nil
	case s.traffic != Forwarded && (s.traffic != BeforeNAT || toNode) && v.Failsafe(&at, in) != nil:
		return at, nil
	}
	iface := f.Out
	if s.ingress {
		iface = f.In
	}
	return at, slices.DeleteFunc(slices.Clone(rules), func(r *Rule) bool { return !r.isOn(v.Node, iface) })
}

// On returns the interfaces of the rule, as Interfaces has them.
func (r *Rule) On(n *Node) []string {
	if r.Interfaces == nil {
		return n.Interfaces
	}
	return r.Interfaces
}

// AnyInterface stands in a flow for an interface that is not known: rules of every interface count.
const AnyInterface = "*"

// isOn tells whether the rule is about packets by an interface.
func (r *Rule) isOn(n *Node, iface string) bool {
	return iface == "" || iface == AnyInterface || slices.ContainsFunc(r.On(n), func(name string) bool {
		prefix, glob := strings.CutSuffix(name, "*")
		return name == iface || glob && strings.HasPrefix(iface, prefix)
	})
}

// owns tells whether an address is the node's.
func (v *View) owns(a netip.Addr) bool {
	_, is := slices.BinarySearchFunc(v.Node.Addrs, CleanAddr(a), netip.Addr.Compare)
	return is || a.Unmap().IsLoopback()
}

// isLocal tells whether an address is of a pod of this node with a network of its own.
func (s *Snapshot) isLocal(a netip.Addr) bool {
	ref, known := s.Pod(a)
	return known && slices.ContainsFunc(s.Pods(), func(p Pod) bool { return p.PodRef == ref && p.Local() && !p.HostNetwork })
}

// answers tells whether a packet may answer one that a failsafe has, whatever its port is.
func (v *View) answers(f *Flow, in *Snapshot) bool {
	return slices.ContainsFunc(v.Node.Failsafes, func(s Failsafe) bool {
		if f.In == "" {
			return s.In && v.holds(&s, f, netip.AddrPortFrom(f.Dialled.Addr(), 0), in)
		}
		return s.Out && v.holds(&s, f, netip.AddrPortFrom(f.Source, 0), in)
	})
}

// holds tells whether a failsafe has an end of a flow.
func (v *View) holds(s *Failsafe, f *Flow, end netip.AddrPort, in *Snapshot) bool {
	return s.Contains(f.Protocol, end) && !(s.Yields && v.lists(end.Addr(), in, f.Would))
}

// Failsafe returns the first failsafe of a view of the node that a flow has: of a flow that arrives by its source,
// else by what is dialled or what is reached. nil is none.
func (v *View) Failsafe(f *Flow, in *Snapshot) *Failsafe {
	ends := []netip.AddrPort{f.Dialled, f.Reached}
	if f.In != "" {
		ends = []netip.AddrPort{netip.AddrPortFrom(f.Source, f.Reached.Port())}
	}
	for i := range v.Node.Failsafes {
		s := &v.Node.Failsafes[i]
		for _, end := range ends {
			if (s.In && f.In != "" || s.Out && f.In == "") && v.holds(s, f, end, in) {
				return s
			}
		}
	}
	return nil
}

// lists tells whether a rule in force for what leaves the node, not a broken one, has an address among its networks,
// pods or nodes. Wide networks do not count.
func (v *View) lists(a netip.Addr, in *Snapshot, would bool) bool {
	rules := v.Rules.Admin
	if v.Traffic != nil {
		rules = v.Traffic.Listing()
	}
	return slices.ContainsFunc(rules, func(r *Rule) bool {
		return (would || !r.Audit) && !r.Broken && in.PeerSet(r.Peer).lists(CleanAddr(a))
	})
}

// Listing returns the rules to whose peers failsafes yield.
func (r *TrafficRules) Listing() []*Rule { return slices.Concat(r.Local.Egress, r.Untracked.Egress) }

// Same tells whether two reports of a node say the same.
func (n *Node) Same(o *Node) bool {
	return n == o || n != nil && o != nil && n.Name == o.Name && n.Missing == o.Missing &&
		maps.Equal(n.Labels, o.Labels) && slices.Equal(n.Addrs, o.Addrs) && slices.Equal(n.Interfaces, o.Interfaces) &&
		slices.EqualFunc(n.Failsafes, o.Failsafes, func(a, b Failsafe) bool { return a.Same(&b) })
}
