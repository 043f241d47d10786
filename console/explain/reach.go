package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// end is where a connection may really arrive, behind Services: the flow as it is reached
// there. Its port is 0 where none is asked for.
type end struct {
	policy.Flow
	pod *policy.Pod // nil where no known pod is there
}

// shown returns the end as the caller may see it: what is dialled in place of a pod of a namespace that the
// caller may not see.
func (in *inquiry) shown(e *end) netip.AddrPort {
	if e.pod != nil && !in.sees(e.pod.Namespace) {
		return e.Dialled
	}
	return e.Reached
}

// endText writes the end as a target.
func (in *inquiry) endText(e *end) string {
	at := in.shown(e)
	return Target{Addr: at.Addr(), Protocol: e.Protocol, Port: at.Port()}.String()
}

// blank is what is asked for, dialled at an address, without entries. The invalid address
// is one that is not known.
func (in *inquiry) blank(a netip.Addr) policy.Flow {
	return policy.Flow{
		Protocol: in.to.Protocol, Dialled: netip.AddrPortFrom(a, in.to.Port), Reached: netip.AddrPortFrom(netip.Addr{}, in.to.Port), Would: in.audited(), Out: in.leavesBy(a),
	}
}

// flow is blank with the live entries of the address, or of the name that is asked for,
// and with those of a supposed answer.
func (in *inquiry) flow(a netip.Addr) policy.Flow {
	f := in.blank(a)
	for i := range in.f.Open {
		if o := &in.f.Open[i]; o.Addr == a && o.Until.After(in.f.Now) && (in.to.Addr.IsValid() || o.Name == in.to.Name) {
			in.enter(&f, o)
		}
	}
	f.Enter(in.supposed...)
	return f
}

// enter adds the entry of a grant: its matches tell whether it is of a cluster policy.
func (in *inquiry) enter(f *policy.Flow, g *policy.GrantInfo) {
	if g.Rule != "" {
		f.EnterGrant(in.f.View, g)
		return
	}
	by := strings.Split(g.By, ",")
	for r := range in.f.View.Rules.Cluster() {
		if i := slices.IndexFunc(r.Matches, func(m *policy.Match) bool { return slices.Contains(by, m.By()) }); i >= 0 {
			f.Enter(r.Matches[i])
			return
		}
	}
	f.Open = append(f.Open, g.Ports)
}

// reach is what NetworkPolicies say of the ends of one address or name.
type reach struct {
	ends   int
	passed int          // of ends
	by     *policy.Rule // that allows the first that passes; nil for a default
	self   bool         // which is the pod itself
	denied *end         // the first that is denied
	// deniedBy is the rule of a cluster policy that denies an end, nil for none.
	deniedBy *policy.Rule
	// service is what the address is of, nil for none.
	service *policy.Service
	// unknown is why more ends may be there, or more may be allowed; "" where all is known.
	unknown string
}

// all tells whether every end is known and allowed.
func (r *reach) all() bool { return r.unknown == "" && r.ends > 0 && r.passed == r.ends }

// add takes in what is said of another address.
func (r *reach) add(o reach) {
	if r.passed == 0 {
		r.by, r.self = o.by, o.self
	}
	r.denied, r.deniedBy = cmp.Or(r.denied, o.denied), cmp.Or(r.deniedBy, o.deniedBy)
	r.service, r.unknown = cmp.Or(r.service, o.service), cmp.Or(r.unknown, o.unknown)
	r.ends, r.passed = r.ends+o.ends, r.passed+o.passed
}

// peerText writes what a rule leads to.
func peerText(p policy.Peer) string {
	if p.Kind == policy.PeerAnywhere {
		return "everywhere"
	}
	return p.Key
}

// maxPeers bounds the rules that are listed of one question.
const maxPeers = 16

// judge says what the policies make of the ends at one address, of which one that is
// allowed is enough, and lists the rules that lead there.
func (in *inquiry) judge(ends ...end) (r reach) {
	r.ends = 1
	for i := range ends {
		e := &ends[i]
		e.Out = in.leavesBy(cmp.Or(e.Reached, e.Dialled).Addr())
		allowed, by := policy.EvaluateAny(in.f.View, in.f.Snapshot, e.Flow)
		if allowed && slices.Contains(in.f.Pod.IPs, e.Reached.Addr()) {
			return reach{ends: 1, passed: 1, self: true}
		}
		in.list(e, by)
		switch {
		case allowed && r.passed == 0:
			r.passed, r.by = 1, by
		case !allowed && r.deniedBy == nil && policy.VerdictOf(false, by) == policy.DenyFlow:
			r.deniedBy = by
		}
	}
	if r.passed > 0 {
		r.deniedBy = nil
	} else if r.denied = &ends[0]; r.deniedBy == nil && r.denied.pod == nil {
		in.unread(&r, r.denied.Reached.Addr())
	}
	return r
}

// list lists the rules that lead to an end, each once: those of NetworkPolicies for the
// port before the others, and beside cluster policies all in the order in which they are asked.
func (in *inquiry) list(e *end, by *policy.Rule) {
	in.listSteps(policy.Steps(in.f.View, in.f.Snapshot, &e.Flow), in.listed(e), in.ordered(), by)
}

// listed is the other side of a connection as the caller may see it.
type listed struct {
	addr  netip.Addr
	pod   string // there, "" for none
	known bool   // the address is
}

func (in *inquiry) listed(e *end) listed {
	l := listed{addr: in.shown(e).Addr(), known: e.Reached.Addr().IsValid()}
	if e.pod != nil && in.sees(e.pod.Namespace) {
		l.pod = e.pod.String()
	}
	return l
}

// listSteps lists the rules of steps.
func (in *inquiry) listSteps(steps []policy.Step, e listed, ordered bool, by *policy.Rule) {
	if slices.Contains(in.f.Unknown, e.addr) {
		e.addr = netip.Addr{}
	}
	if ordered {
		in.order(e, steps, by)
	}
	slices.SortStableFunc(steps, func(a, b policy.Step) int { return policy.CompareBool(b.Asked, a.Asked) })
	for _, s := range steps {
		known := e.known || s.Rule == by
		if s.Rule.Tier != policy.Namespace || s.Rule.Action == policy.Deny || s.Rule.Peer.Kind == policy.PeerNames || !known {
			continue
		}
		p := Peer{Policy: s.Rule.Policy, Path: s.Rule.Path, Peer: peerText(s.Rule.Peer), Ports: string(s.Ports), OnPort: s.Asked, rule: s.Rule}
		if p.Pod = e.pod; e.addr.IsValid() {
			p.Address = e.addr.String()
		}
		i := slices.IndexFunc(in.said.Peers, func(o Peer) bool { return o.rule == p.rule && o.Address == p.Address && o.Ports == p.Ports })
		switch {
		case i >= 0:
			in.said.Peers[i].OnPort = in.said.Peers[i].OnPort || p.OnPort
		case len(in.said.Peers) < maxPeers:
			in.said.Peers = append(in.said.Peers, p)
		}
	}
}

// unread notes of an address that no rule leads to that it may be a pod's that is not
// known yet.
func (in *inquiry) unread(r *reach, a netip.Addr) {
	if in.f.OtherPods == "" || in.f.Inside == "node" || r.unknown != "" {
		return
	}
	if in.may(in.to.Port, policy.PeerPods, policy.PeerPorts) {
		r.unknown = fmt.Sprintf("whether %s is a pod that NetworkPolicies allow is unknown: %s", a, in.f.OtherPods)
	}
}

// reached says what NetworkPolicies make of an address as it is dialled.
func (in *inquiry) reached(a netip.Addr) reach {
	if s := in.f.Services[a]; s != nil {
		return in.behind(a, s)
	}
	return in.judge(in.direct(a, in.podAt(a)))
}

// direct is the end of a connection that is led nowhere else.
func (in *inquiry) direct(a netip.Addr, p *policy.Pod) end {
	f := in.flow(a)
	f.Reached = f.Dialled
	return end{f, p}
}

// podAt returns the pod at an address, nil where none is known.
func (in *inquiry) podAt(a netip.Addr) *policy.Pod {
	if in.f.Pods == nil {
		return nil
	}
	for p := range in.f.Pods {
		if !p.Finished() && !p.HostNetwork && slices.Contains(p.IPs, a) {
			return p
		}
	}
	return nil
}

// sees tells whether the caller may see the objects of a namespace.
func (in *inquiry) sees(namespace string) bool { return in.f.Sees == nil || in.f.Sees(namespace) }

// permitted answers where the policies allow all that is there.
func (in *inquiry) permitted(what string, r reach) {
	where := ""
	if r.service != nil {
		where = ", behind " + in.serviceText(r.service)
	}
	switch {
	case r.self:
		in.settle(Allowed, "%s is the pod itself%s, which it may always reach", what, where)
	case r.by == nil:
		in.settle(Allowed, "no rule of a cluster policy denies %s%s, and no other policy selects the pod", what, where)
	default:
		in.settle(Allowed, "%s allows %s%s", in.peerRuleText(r.by), what, where)
	}
}

// peerRuleText names a rule with peers in a sentence.
func (in *inquiry) peerRuleText(r *policy.Rule) string {
	if r.Tier != policy.Namespace {
		return in.ruleText(r)
	}
	return fmt.Sprintf("NetworkPolicy %s (%s)%s", r.Policy, r.Path, in.place(r, r.Path))
}

// serviceText names a Service to who may see it.
func (in *inquiry) serviceText(s *policy.Service) string {
	if !in.sees(s.Ref.Namespace) {
		return "a Service"
	}
	return "the Service " + s.Ref.Namespace + "/" + s.Ref.Name
}

// may tells whether a rule of some kinds may allow a port, wherever it leads.
func (in *inquiry) may(port uint16, kinds ...policy.PeerKind) bool {
	f := in.blank(netip.Addr{})
	f.Reached = netip.AddrPortFrom(netip.Addr{}, port)
	return slices.ContainsFunc(policy.Steps(in.f.View, in.f.Snapshot, &f), func(s policy.Step) bool {
		return s.Asked && s.Rule.Action == policy.Accept && slices.Contains(kinds, s.Rule.Peer.Kind)
	})
}

// serviceName reads NAME.NAMESPACE.svc.DOMAIN.
func (in *inquiry) serviceName(n fqdn.Name) (ref policy.ServiceRef, ok bool) {
	if in.f.Domain == "" {
		return ref, false
	}
	rest, ok := n.TrimSuffix(in.f.Domain)
	if !ok || rest == "" {
		return ref, false
	}
	labels := strings.Split(rest.String(), ".")
	if len(labels) != 3 || labels[2] != "svc" {
		return ref, false
	}
	return policy.ServiceRef{Namespace: labels[1], Name: labels[0]}, true
}
