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

// name answers for a name.
func (in *inquiry) name() {
	if a := in.f.Asked; a != nil && a.Left != "" {
		in.note("%s leads to %s, which is no name of the cluster and is decided in its place", in.to.Name, a.Left)
		in.f.Aliases = policy.Query{Name: in.to.Name, Aliases: in.f.Aliases}.Leave(a.Left).Aliases
		in.to.Name = a.Left
	}
	n := in.to.Name
	s := in.stand(n)
	open, checked := in.open(func(name fqdn.Name, _ string) bool { return in.counts(name) })
	in.led()
	in.limits(&s.Decision)
	in.resolvers()
	in.byPeers(s.Matches, s.Reply == policy.Resolve)
	blocked := in.answers(n)
	r := in.namedReach(n)
	over := in.overrules(s.Matches, func() reach { return in.namedReach(n) })
	switch {
	case s.Reply != policy.Resolve && s.Denied != nil:
		in.overruled(n.String(), s.Denied.Rule)
		in.said.Reason += gets(s.Reply, "denied")
	case over != nil:
		in.overruled(n.String(), over)
	case len(open) > 0:
		in.settle(Allowed, "the pod asked for the name, and %s open on %s until %s", addresses(len(open)), open[0].Ports, open[0].until())
	case len(checked) > 0 && !r.all():
		in.checked(fmt.Sprintf("the pod asked for the name, and %s open", addresses(len(checked))), checked)
	case s.Limit != policy.NoLimit:
		in.settle(Denied, "%s", limited(&s.Decision))
	case len(s.covers) > 0 && len(blocked) > 0:
		in.blocked(n, s.covers[0], blocked)
	case r.all() && s.Reply == policy.Resolve:
		in.permitted(in.leadsTo(n), r)
	case len(s.covers) > 0 && s.covers[0].ServerName && in.inCluster(n):
		in.opensNothing(s.covers[0], n)
	case len(s.covers) > 0:
		in.onceAsked(s.covers[0], n, "%s covers the name on %s; its addresses are opened when the pod asks for it", in.quoted(s.covers[0]), s.covers[0].Ports)
	case len(s.short) > 0:
		in.short(n, s.short)
	case len(s.audit) > 0:
		in.auditOnly(n, s.audit[0])
	case in.pointed():
		g := in.said.Open[0]
		in.settle(Denied, "an answer for an allowed name pointed at this one, which is open on %s until %s, and not%s", g.Ports, moment(g.Until), in.to.onPort())
		in.write("", n)
	case in.completed() != "":
		short := in.completed()
		in.settle(Denied, "this is %s with a search suffix, and opens something only where the answer points at %s", short, short)
		in.do("ask about %s, which the policies allow: the pod's resolver goes on to it", short)
	default:
		in.settle(Denied, "no match of the pod's policies covers the name%s", gets(s.Reply, "unmatched"))
		if in.bare() {
			return // which name the pod asks for in its place is said
		}
		in.nearMisses(n)
		in.elsewhere(n)
		in.write("", n)
	}
	if s.Reply == policy.Resolve && r.ends > 0 || r.service != nil {
		in.notPermitted(in.first, r)
	}
}

func (in *inquiry) inCluster(n fqdn.Name) bool {
	return in.f.Domain != "" && n.HasSuffix(in.f.Domain)
}

// namedReach returns the verdict of NetworkPolicies on the known addresses of a name. For
// a name without known addresses a rule for all destinations is enough.
func (in *inquiry) namedReach(n fqdn.Name) (r reach) {
	for _, a := range in.addressesOf(n) {
		if !in.first.IsValid() {
			in.first = a
		}
		r.add(in.reached(a))
	}
	if r.ends > 0 || r.service != nil {
		return r
	}
	e := end{Flow: in.flow(netip.Addr{})}
	switch allowed, by := policy.EvaluateAny(in.f.View, in.f.Snapshot, e.Flow); {
	case allowed && (by == nil || !in.inCluster(n)):
		in.list(&e, by)
		return reach{ends: 1, passed: 1, by: by}
	case !allowed:
		if in.ordered() {
			in.order(in.listed(&e), policy.Steps(in.f.View, in.f.Snapshot, &e.Flow), by)
		}
		if policy.VerdictOf(false, by) == policy.DenyFlow {
			r.deniedBy = by
		}
	}
	return r
}

// addressesOf returns the known addresses of a name: those of its Service, or else what
// the pod was told.
func (in *inquiry) addressesOf(n fqdn.Name) (out []netip.Addr) {
	if ref, ok := in.serviceName(n); ok {
		for a, s := range in.f.Services {
			if s.Ref == ref {
				out = append(out, a)
			}
		}
		if slices.SortFunc(out, netip.Addr.Compare); len(out) > 0 {
			return out
		}
	}
	add := func(a netip.Addr) {
		if !slices.Contains(out, a) && len(out) < maxAddresses {
			out = append(out, a)
		}
	}
	for _, o := range in.f.Open {
		if in.counts(o.Name) && o.Until.After(in.f.Now) {
			add(o.Addr)
		}
	}
	if in.f.Asked != nil {
		for _, a := range in.f.Asked.Answers {
			add(a)
		}
	}
	return out
}

// maxAddresses bounds the addresses of one name that are looked at.
const maxAddresses = 64

// counts tells whether the target's name is this one or counts as it.
func (in *inquiry) counts(n fqdn.Name) bool {
	return n == in.to.Name || slices.Contains(in.f.Via, n) || slices.Contains(in.f.Aliases, n)
}

// resolvers says which resolvers are denied to the pod: it gets no name from them.
func (in *inquiry) resolvers() {
	for _, a := range in.f.Resolvers {
		if in.f.DeniesResolver == nil {
			return
		}
		switch denied, by := in.f.DeniesResolver(a); {
		case denied && by == nil:
			in.note("no NetworkPolicy allows the resolver %s: the pod's queries to it are REFUSED, for every name", a)
		case denied:
			in.note("%s denies the resolver %s: the pod's queries to it are REFUSED, for every name", in.ruleText(by), a)
		}
	}
}

// led says which names lead to the target's.
func (in *inquiry) led() {
	for _, n := range in.f.Via {
		in.note("an answer to %s leads the pod to %s, which counts as it as well", n, in.to.Name)
	}
	for _, n := range in.f.Aliases {
		in.note("an answer with the alias %s leads the pod to %s, for which rules that deny %s count as well", n, in.to.Name, n)
	}
}

// leadsTo writes what a name leads to.
func (in *inquiry) leadsTo(n fqdn.Name) string {
	switch out := in.addressesOf(n); len(out) {
	case 0:
		return n.String()
	case 1:
		return fmt.Sprintf("%s, the address of the name", out[0])
	default:
		return fmt.Sprintf("all %d known addresses of the name", len(out))
	}
}

// pointed tells whether the name is open on other ports though no match covers it:
// by the answer for a name that one covers.
func (in *inquiry) pointed() bool { return len(in.said.Open) > 0 && !in.said.Open[0].Ended }

// bare tells whether the name is one label, which pods complete by their search list.
func (in *inquiry) bare() bool { return in.f.Domain != "" && in.to.Name.NumLabels() == 1 }

// completed returns the name with which the pod's resolver began, if what is asked for
// looks like an allowed one that a search list completed; else "". The suffixes are
// those that a cluster gives, as the agent takes them.
func (in *inquiry) completed() fqdn.Name {
	if in.to.Addr.IsValid() || in.f.View == nil || in.f.Domain == "" || len(in.f.View.Decide(in.to.Name).Matches) > 0 {
		return ""
	}
	for _, above := range []string{in.f.Pod.Namespace + ".svc.", "svc.", ""} {
		suffix, err := fqdn.ParseName(above + in.f.Domain.String())
		if short, ok := in.to.Name.TrimSuffix(suffix); err == nil && ok && short != "" && in.f.View.Decide(short).Allowed() {
			return short
		}
	}
	return ""
}

func addresses(n int) string {
	if n == 1 {
		return "1 address is"
	}
	return fmt.Sprintf("%d addresses are", n)
}

// answers lists what the name was answered with, and returns the addresses that the
// guard keeps closed, if it does that with all of them.
func (in *inquiry) answers(n fqdn.Name) (blocked []Seen) {
	asked := in.f.Asked
	if asked == nil || in.f.Unresolved {
		return nil
	}
	why := asked.Verdict.String()
	if asked.Error != "" {
		why += ": " + asked.Error
	}
	in.note("the pod last asked for %s at %s: %s", cmp.Or(asked.Name, n), moment(asked.Asked), why)
	for _, a := range asked.Answers {
		seen := Seen{Name: n.String(), Address: a.String(), Asked: asked.Asked}
		if in.f.Blocked != nil {
			seen.Blocked = in.f.Blocked(n, a)
		}
		in.said.Names = append(in.said.Names, seen)
		if seen.Blocked != "" {
			blocked = append(blocked, seen)
		}
	}
	if len(blocked) < len(asked.Answers) {
		for _, s := range blocked {
			in.note("%s is taken out of the answers for %s by the guard against rebinding: %s", s.Address, n, s.Blocked)
		}
		return nil
	}
	return blocked
}

// gets says what the question for a name gets that has no answer, by a field of dns.
func gets(u policy.Unmatched, field string) string {
	if u == policy.Resolve {
		return ""
	}
	return fmt.Sprintf("; its question gets %s (dns.%s: %s)", map[policy.Unmatched]string{policy.NXDomain: "NXDOMAIN", policy.Refuse: "REFUSED"}[u], field, u)
}

// nearMisses names patterns that look as if they covered the name, and do not.
func (in *inquiry) nearMisses(n fqdn.Name) {
	const most = 3
	said := map[string]bool{}
	for _, r := range slices.Concat(in.f.View.Rules.Namespace, in.f.View.Rules.NamespaceChecked) {
		for _, m := range r.Matches {
			if why := nearMiss(m.Pattern.String(), n); why != "" && !said[why] && len(said) < most {
				said[why] = true
				in.note("%s of %s: %s", m.Pattern, m.Policy, why)
			}
		}
	}
}

// nearMiss says why a pattern that is about the same domain does not match the
// name, "" if it is not.
func nearMiss(pattern string, n fqdn.Name) string {
	body := strings.TrimPrefix(strings.TrimPrefix(pattern, "**."), "*.")
	domain, err := fqdn.ParseName(body)
	if err != nil || strings.Contains(body, "*") || domain.NumLabels() < 2 || !n.HasSuffix(domain) {
		return ""
	}
	switch {
	case body == pattern:
		return fmt.Sprintf("it covers %s alone, and nothing below it; \"**.%s\" covers what is below", body, body)
	case n == domain:
		return fmt.Sprintf("it covers what is below %s, and not %s itself; write that as a name of its own", body, body)
	}
	return fmt.Sprintf("its * is exactly one label; \"**.%s\" covers deeper names", body)
}
