package policy

import (
	"net/netip"
	"slices"
)

// Flow is one connection as evaluation sees it.
type Flow struct {
	Protocol Protocol
	// Dialled is where the pod connects to, Reached where that leads after the translation
	// of Services. A protocol without ports has port 0. The zero value of Reached is
	// unknown: rules for every destination and port alone match it.
	Dialled, Reached netip.AddrPort
	// ByName: rules by name that accept count although what is reached is not what is dialled. What is dialled is
	// an address of a Service that no tenant chose, or what is reached is the node.
	ByName bool
	// Open are the live entries for the dialled address in the Namespace tier, which keeps
	// them by port set; Entries are the rules with an ID that have one. To evaluate a connection with a server name,
	// leave out the rules with ServerName whose grants of the address are not for that name.
	Open    []PortSet
	Entries []*Rule
	// Implied: the flow goes to port 53 of a known resolver, which ImpliesDNS is about.
	Implied bool
	// Exempt: no policy denies the flow, since an agent serves DNS there. Of a node's flows it is
	// what gives the node its link and its address: neighbour discovery, MLD, IGMP and DHCP.
	Exempt bool
	// Would evaluates the view as if its Audit policies enforced.
	Would bool
	// Source is the address that a connection comes from when it reaches its pod, or the node, before
	// masquerading. FromNode: a process of the pod's node began it, for EvaluateIngress.
	Source   netip.Addr
	FromNode bool
	// In and Out are the names of the interfaces by which it comes to the node and leaves it, for EvaluateNode. A flow
	// that begins at a socket of the node has no In; without an Out too, rules of every interface count.
	In, Out string
	// open: the connection was admitted, as for Keeps.
	open bool
}

// Evaluate tells whether a view allows a flow, and by which rule: nil for a default, and
// if no rule is asked. The snapshot has the peer sets of the view. It is the one
// evaluation of connections: the kernel's rules have to agree with it. Of a view of the node it is about what its sockets
// send alone. A connection that is not allowed, by a rule with ServerName, is checked: the kernel allows none, and the agent connects
// where the evaluation says the same with the server name. Of an Audit policy, such a rule allows.
func Evaluate(v *View, in *Snapshot, f *Flow) (allowed bool, by *Rule) {
	if v == nil || v.Node != nil && f.Exempt {
		return true, nil
	}
	if v.Node != nil {
		a, r := v.asked(nodeStep{traffic: Local}, in, f)
		return a != Deny, r
	}
	t := v.tiers(f.Would)
	if t.empty || f.Exempt || f.Implied && v.impliesDNS(f.Would) || v.has(f.Dialled.Addr()) && v.has(f.Reached.Addr()) {
		return true, nil
	}
	if a, r := f.ordered(v.Rules.Admin, in); a != Pass {
		return a == Accept && !r.checks(), r
	}
	if t.isolated {
		if r := f.first(v.Rules.NamespaceDeny, in); r != nil {
			return false, r
		}
		r := f.first(v.Rules.Namespace, in)
		if r != nil || v.has(f.Reached.Addr()) || f.open && !v.Enforced {
			return true, r
		}
		r = f.first(v.Rules.NamespaceChecked, in)
		return r != nil && !r.checks(), r
	}
	if a, r := f.ordered(v.Rules.Baseline, in); a != Pass {
		return a == Accept && !r.checks(), r
	}
	return true, nil
}

// EvaluateIngress tells whether a view allows a connection to its pod, and by which rule: nil for a
// default, and if no rule is asked. It is the one evaluation of connections to pods, as Evaluate is of
// those from them. A connection that was admitted stays: all rules for ingress are of standards.
func EvaluateIngress(v *View, in *Snapshot, f *Flow) (allowed bool, by *Rule) {
	if v == nil || v.Ingress == nil || f.FromNode { // kubelet probes
		return true, nil
	}
	if a, r := f.ordered(v.Ingress.Admin, in); a != Pass {
		return a == Accept, r
	}
	if len(v.Ingress.NetworkPolicies) > 0 {
		r := f.first(v.Ingress.Namespace, in)
		return r != nil || v.has(f.Source) && v.has(f.Reached.Addr()), r
	}
	if a, r := f.ordered(v.Ingress.Baseline, in); a != Pass {
		return a == Accept, r
	}
	return true, nil
}

// Keeps tells whether a connection that was admitted stays: it is cut where a rule of our kinds
// denies it, or an FQDNNetworkPolicy isolates its pod. ClusterNetworkPolicies and
// NetworkPolicies decide about new connections.
func Keeps(v *View, in *Snapshot, f *Flow) bool {
	verdict, _ := Kept(v, in, f)
	return verdict == AllowFlow
}

// tiers is what is in force of a view.
type tiers struct {
	isolated bool // the Namespace tier exists: the pod is default-deny there
	ordered  bool // a rule of the Admin or the Baseline tier is in force
	empty    bool // no policy is in force
}

// tiers returns what is in force. The Namespace tier exists where an FQDNNetworkPolicy
// selects the pod, or a cluster policy and a NetworkPolicy do, or a NetworkPolicy of a Standalone view.
func (v *View) tiers(would bool) tiers {
	t := tiers{isolated: v.Enforced || would && len(v.Policies) > 0 || v.Standalone && len(v.NetworkPolicies) > 0}
	t.ordered = v.anyOfCluster(func(r *Rule) bool { return would || !r.Audit })
	t.empty = !t.isolated && !t.ordered
	t.isolated = t.isolated || t.ordered && len(v.NetworkPolicies) > 0
	return t
}

// OrderedRules returns the rules of the Admin and the Baseline tier that are in force, in
// order. namespace tells whether the Namespace tier exists, some whether there are any.
func (v *View) OrderedRules() (admin, baseline []*Rule, namespace, some bool) {
	t := v.tiers(false)
	if !v.Ordered() {
		return nil, nil, t.isolated, false
	}
	enforced := func(rules []*Rule) []*Rule {
		return slices.DeleteFunc(slices.Clone(rules), func(r *Rule) bool { return r.Audit })
	}
	admin, baseline = enforced(v.Rules.Admin), enforced(v.Rules.Baseline)
	return admin, baseline, t.isolated, len(admin)+len(baseline) > 0
}

// Ordered tells whether the view has rules of the tiers with an order.
func (v *View) Ordered() bool { return len(v.Rules.Admin)+len(v.Rules.Baseline) > 0 }

// anyOfCluster tells whether a rule of a cluster policy is as which says.
func (v *View) anyOfCluster(which func(*Rule) bool) bool {
	return slices.ContainsFunc(v.Rules.Admin, which) || slices.ContainsFunc(v.Rules.Baseline, which)
}

// OrderInForce tells whether any policy of the tiers with an order enforces rules for the pod.
func (v *View) OrderInForce() bool { return v.tiers(false).ordered }

// InForce tells whether any policy enforces rules for connections of the pod. Ingress is in force where there is one.
func (v *View) InForce() bool { return !v.tiers(false).empty }

// ImpliesDNS tells whether DNS to known resolvers comes before the rules: a policy of our kinds
// is in force for the pod, or none of any kind. Else the policies of the standards decide.
func (v *View) ImpliesDNS() bool {
	return v == nil || v.impliesDNS(false) || !v.InForce()
}

func (v *View) impliesDNS(would bool) bool {
	return v.Enforced || would && len(v.Policies) > 0 || v.anyOfCluster(func(r *Rule) bool { return !r.Standard && (would || !r.Audit) })
}

// WouldDeny tells whether the Audit policies, if they were enforced, could deny connections
// that the view allows.
func (v *View) WouldDeny() bool {
	return v.tiers(true).isolated && !v.tiers(false).isolated || slices.ContainsFunc(v.Rules.NamespaceDeny, func(r *Rule) bool { return r.Audit }) || v.anyOfCluster(func(r *Rule) bool { return r.Audit && r.Action != Accept })
}

// has tells whether an address is the pod's own.
func (v *View) has(a netip.Addr) bool { return slices.Contains(v.Pod.IPs, CleanAddr(a)) }

// ordered returns the action of the first rule that hits the flow, Pass for none.
func (f *Flow) ordered(rules []*Rule, in *Snapshot) (Action, *Rule) {
	switch r := f.first(rules, in); {
	case r == nil:
		return Pass, nil
	case r.Broken:
		return Deny, r
	default:
		return r.Action, r
	}
}

func (f *Flow) first(rules []*Rule, in *Snapshot) *Rule {
	for _, r := range rules {
		if (f.Would || !r.Audit) && !(f.open && r.Standard && r.denies()) && f.hits(r, in) {
			return r
		}
	}
	return nil
}

// checks tells whether the agent checks what the rule accepts: nothing looks at the server names of connections that
// Audit policies alone are about.
func (r *Rule) checks() bool { return r.ServerName && !r.Audit }

// denies tells whether the rule denies what it matches.
func (r *Rule) denies() bool { return r.Action == Deny || r.Broken && r.Action == Pass }

// hits tells whether a rule matches the flow.
func (f *Flow) hits(r *Rule, in *Snapshot) bool {
	switch {
	case r.Broken:
		return r.Action != Accept
	case r.Peer.Kind != PeerNames:
		port := f.Reached.Port()
		return r.Ports.Contains(f.Protocol, port) &&
			(r.Peer.Kind == PeerAnywhere || in.PeerSet(r.Peer).Contains(CleanAddr(f.peer(r)), f.Protocol, port))
	}
	return f.live(r) && r.Ports.Contains(f.Protocol, f.Dialled.Port())
}

// peer returns the end of the flow that the peers of a rule are compared with.
func (f *Flow) peer(r *Rule) netip.Addr {
	if r.Ingress {
		return f.Source
	}
	return f.Reached.Addr()
}

// live tells whether the flow has an entry of a rule with names that counts. Of a flow that is led elsewhere,
// those of rules that deny and pass always count.
func (f *Flow) live(r *Rule) bool {
	if r.Action == Accept && !f.ByName && f.led() {
		return false
	}
	if r.Tier == Namespace && !r.ServerName {
		return slices.Contains(f.Open, r.Ports)
	}
	return slices.Contains(f.Entries, r)
}

// led tells whether what is reached is known, and not what is dialled.
func (f *Flow) led() bool {
	return f.Reached.Addr().IsValid() && (f.Reached.Port() != f.Dialled.Port() || CleanAddr(f.Reached.Addr()) != CleanAddr(f.Dialled.Addr()))
}

// EnterGrant adds the entry of a grant.
func (f *Flow) EnterGrant(v *View, g *GrantInfo) {
	if g.Rule == "" {
		f.Open = append(f.Open, g.Ports)
		return
	}
	for r := range v.Rules.Identified() {
		if r.ID == g.Rule {
			f.Entries = append(f.Entries, r)
		}
	}
}

// Enter adds the entries that an answer for a name of the matches makes. Those of Audit
// policies count as Would says.
func (f *Flow) Enter(matches ...*Match) {
	for _, m := range matches {
		switch {
		case m.Audit && !f.Would:
		case m.Tier == Namespace && !m.ServerName:
			f.Open = append(f.Open, m.Ports)
		default:
			f.Entries = append(f.Entries, m.Rule)
		}
	}
}
