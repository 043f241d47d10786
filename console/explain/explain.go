package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// Question is what is asked: can the pod of the facts, or the node of a policy.NodeRef, reach the target? With
// From it is: can the source reach the pod or the node on the port of the target?
type Question struct {
	Node string // whose agent answers
	To   Target
	From *Source // nil: the pod connects
}

// Explain answers a question from facts.
func Explain(q Question, f Facts) Explanation {
	in := &inquiry{to: q.To, from: q.From, f: &f, said: Explanation{Pod: f.Pod.String(), Node: q.Node}}
	if q.From != nil {
		in.said.From, in.said.To = q.From.Text, q.To.portText()
		in.fromSource()
		in.forwarded()
		in.flows()
		in.notes()
		in.nodeWords()
		return in.said
	}
	in.said.To = q.To.String()
	in.selecting()
	if !in.unjudged() && !in.undenied() {
		if q.To.Addr.IsValid() {
			in.address()
		} else {
			in.name()
		}
	}
	in.forwarded()
	in.flows()
	in.notes()
	in.engine()
	in.nodeWords()
	return in.said
}

// inquiry is one question under way.
type inquiry struct {
	to   Target
	from *Source // nil: the pod connects
	f    *Facts
	said Explanation
	// source is the address of the source that an answer about a node is about.
	source netip.Addr
	// first is an address of the name that is asked about, invalid where none is known.
	first netip.Addr
	// supposed are matches whose entries all flows have: those of an answer that is supposed.
	supposed []*policy.Match
}

// audited tells whether only Audit policies select the pod. No rule for ingress is one of these.
func (in *inquiry) audited() bool {
	if in.ofNode() {
		return in.from == nil && !slices.ContainsFunc(in.f.View.Traffic.Listing(), func(r *policy.Rule) bool { return !r.Audit })
	}
	return in.from == nil && !in.f.View.InForce()
}

// selecting lists the policies that select the pod: cluster policies that may not be read once
// for each tier.
func (in *inquiry) selecting() {
	v := in.f.View
	if v == nil {
		return
	}
	for _, id := range v.Policies {
		p := Policy{Policy: id}
		if found := in.policy(id); found != nil {
			p.Enforcement = string(cmp.Or(found.Spec.Enforcement, v1alpha1.EnforcementEnforce))
		}
		in.said.Policies = append(in.said.Policies, p)
	}
	rules := v.Rules.Cluster()
	if in.ofNode() {
		rules = v.Traffic.All()
	}
	for r := range rules {
		in.selectedBy(r)
	}
	in.said.NetworkPolicies = v.NetworkPolicies
}

// selectedBy lists the cluster policy of a rule.
func (in *inquiry) selectedBy(r *policy.Rule) {
	p := ClusterPolicy{Policy: r.Policy, Tier: r.Tier.String(), Enforcement: string(v1alpha1.EnforcementEnforce)}
	if r.Audit {
		p.Enforcement = string(v1alpha1.EnforcementAudit)
	}
	if in.ofNode() {
		p.Traffic = r.Traffic.String()
	}
	if in.hidden(r) {
		p.Policy = ""
	}
	if !slices.Contains(in.said.ClusterPolicies, p) {
		in.said.ClusterPolicies = append(in.said.ClusterPolicies, p)
	}
}

// policy returns the policy of an id, nil if it is gone by now.
func (in *inquiry) policy(id string) *v1alpha1.FQDNNetworkPolicy {
	for _, p := range in.f.Policies {
		if p.Namespace+"/"+p.Name == id {
			return p
		}
	}
	return nil
}

// settle says the answer as it is for the pod: where only Audit policies select it
// nothing is denied, and nothing has to be asked for.
func (in *inquiry) settle(v Verdict, format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	if in.f.View != nil && in.audited() {
		switch v {
		case OnceAsked:
			v, reason = Allowed, "only Audit policies select the pod, so it passes; enforced, it would be allowed: "+reason
		case Denied:
			v, reason = WouldDeny, "only Audit policies select the pod, so it passes; enforced, it would be denied: "+reason
		}
	}
	in.said.Verdict, in.said.Reason = v, reason
}

// unjudged answers for pods that no policy holds for.
func (in *inquiry) unjudged() bool {
	p := &in.f.Pod
	switch {
	case !p.Local():
		in.settle(Elsewhere, "the pod runs on the node %s, whose agent knows; ask that one", p.NodeName)
	case p.HostNetwork:
		in.settle(Allowed, "the pod uses the host network: no policy for pods holds for it, and policies for its node decide its connections")
	case in.contested():
		in.said.Verdict = Denied
		in.said.Reason = fmt.Sprintf("other pods claim %s too, and their traffic cannot be distinguished: nothing is allowed for that address", in.f.Contested[0])
		in.do("remove all but one of the pods that have the address; a pod that has ended, or was left behind by a node, may be among them")
	case in.f.View == nil:
		in.settle(Allowed, "no policy selects the pod: everything is allowed")
		if !in.to.Addr.IsValid() {
			in.elsewhere(in.to.Name) // the usual cause is a label
		}
	case in.ingressAlone():
		in.settle(Allowed, "no policy for egress selects the pod: everything is allowed")
	default:
		return false
	}
	return true
}

// ingressAlone tells whether the policies of the pod are about connections to it alone.
func (in *inquiry) ingressAlone() bool {
	v := in.f.View
	if in.ofNode() {
		return len(v.Traffic.Listing()) == 0
	}
	return !v.InForce() && !v.Ordered() && len(v.Policies)+len(v.NetworkPolicies) == 0
}

// contested tells whether other pods claim every address from which the pod could
// connect: to an address, those of its family.
func (in *inquiry) contested() bool {
	free := func(a netip.Addr) bool {
		return (!in.to.Addr.IsValid() || a.Is4() == in.to.Addr.Is4()) && !slices.Contains(in.f.Contested, a)
	}
	return len(in.f.Contested) > 0 && !slices.ContainsFunc(in.f.Pod.IPs, free)
}

// standing is how the matches of a name stand to what is asked for.
type standing struct {
	policy.Decision
	covers []*policy.Match // of the rule that decides, on this port
	short  []*policy.Match // that would, but for the port
	audit  []*policy.Match // of an Audit policy on this port, which open nothing
}

// stand judges a name, and lists its matches.
func (in *inquiry) stand(n fqdn.Name) (s standing) {
	q := policy.Query{Name: n, InCluster: in.inCluster(n), Would: in.audited()}
	if n == in.to.Name {
		q.Via, q.Aliases = in.f.Via, in.f.Aliases
	}
	s.Decision = policy.DecideAddresses(in.f.View, q)
	for _, m := range s.Matches {
		if m.Accepts() && (!m.Audit || in.audited()) {
			s.short = append(s.short, m)
		}
	}
	var on map[*policy.Rule]bool
	s.covers, _ = in.decisive(s.Matches, in.audited())
	s.audit, on = in.decisive(s.Matches, true)
	for _, m := range s.Matches {
		if in.hidden(m.Rule) {
			continue
		}
		in.said.Matches = append(in.said.Matches, Match{
			Name: n.String(), Policy: m.Policy, Path: m.Path, Match: m.Pattern.String(), Ports: string(m.Ports), Audit: m.Audit, ServerName: ServerNameOf(m.ServerName), OnPort: on[m.Rule], At: strings.TrimPrefix(in.place(m.Rule, m.Path), " at "),
		})
	}
	return s
}

// decisive returns the matches that decide a connection to an address of their name, and
// the rules that are for its port. In the Namespace tier all that are for the port do.
func (in *inquiry) decisive(matches []*policy.Match, would bool) (own []*policy.Match, on map[*policy.Rule]bool) {
	f := in.blank(netip.Addr{})
	f.Would = would
	f.Enter(matches...)
	on = map[*policy.Rule]bool{}
	for _, s := range policy.Steps(in.f.View, in.f.Snapshot, &f) {
		on[s.Rule] = s.Asked
	}
	allowed, by := policy.EvaluateAny(in.f.View, in.f.Snapshot, f)
	for _, m := range matches {
		decides := by != nil && policy.VerdictOf(allowed, by) != policy.DenyFlow && m.Rule.Tier == by.Tier && (m.Rule == by || by.Tier == policy.Namespace)
		if decides && on[m.Rule] && m.ServerName == by.ServerName {
			own = append(own, m)
		}
	}
	return own, on
}

// open lists the grants that are chosen, and returns those that are for the port, apart those of rules that
// require the server name.
func (in *inquiry) open(choose func(fqdn.Name, string) bool) (now, checked []Grant) {
	for i, o := range slices.Concat(in.f.Open, in.f.Ended) {
		if !choose(o.Name, o.Addr.String()) {
			continue
		}
		g := Grant{
			Name: o.Name.String(), Address: o.Addr.String(), Ports: string(o.Ports), Until: o.Until, Held: o.Held, By: By(o.By, in.f.View, in.seesCluster),
			ServerName: ServerNameOf(o.Rule.ServerName()), Ended: i >= len(in.f.Open) || !o.Until.After(in.f.Now),
		}
		f := in.blank(o.Addr)
		in.enter(&f, &o)
		in.said.Open = append(in.said.Open, g)
		byName := func(s policy.Step) bool { return s.Asked && s.Rule.Peer.Kind == policy.PeerNames }
		if g.Ended || in.ledOn(o.Addr) || !slices.ContainsFunc(policy.Steps(in.f.View, in.f.Snapshot, &f), byName) {
			continue
		}
		switch policy.VerdictOf(policy.EvaluateAny(in.f.View, in.f.Snapshot, f)) {
		case policy.AllowFlow:
			now = append(now, g)
		case policy.CheckFlow:
			checked = append(checked, g)
		}
	}
	slices.SortStableFunc(in.said.Open, func(a, b Grant) int { return b.Until.Compare(a.Until) })
	slices.SortStableFunc(now, func(a, b Grant) int { return b.Until.Compare(a.Until) })
	slices.SortStableFunc(checked, func(a, b Grant) int { return b.Until.Compare(a.Until) })
	return now, checked
}

// quoted names a match in a sentence.
func (in *inquiry) quoted(m *policy.Match) string {
	if in.hidden(m.Rule) {
		return in.ruleText(m.Rule)
	}
	return fmt.Sprintf("%q of %s (%s)%s", m.Pattern.String(), m.Policy, m.Path, in.place(m.Rule, m.Path))
}

// until tells when the address closes, and since when only its use keeps it open.
func (g *Grant) until() string {
	if g.Held.IsZero() {
		return moment(g.Until)
	}
	return moment(g.Until) + "; the last answer that held it is of " + moment(g.Held) + ", and only its use keeps it open since"
}

// moment writes a time in a sentence.
func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// ports writes port sets in a sentence.
func ports(ms []*policy.Match) string {
	var sets []string
	for _, m := range ms {
		if p := string(m.Ports); p != "" && !slices.Contains(sets, p) {
			sets = append(sets, p)
		}
	}
	if len(sets) == 0 {
		return "no port"
	}
	return strings.Join(sets, " and ")
}
