package proxy

import (
	"slices"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
)

// action is what happens to a selected pod's question.
type action uint8

const (
	pass     action = iota // the upstream's answer, unless it is denied
	open                   // the upstream's answer, whose addresses are granted
	complete               // pass, unless the upstream completes the search path
	deny                   // the reply of a rule that denies, no upstream is asked
	notThere               // NXDOMAIN, no upstream is asked
	refuse                 // REFUSED, no upstream is asked
	limited                // the reply of a limit, no upstream is asked
)

// plan is the decision of the view and the configuration about a question, before an
// upstream is asked.
type plan struct {
	action   action
	decision policy.Decision // about the question
	// base is about the allowed name that the question is with a search suffix, where
	// action is complete.
	base policy.Decision
}

// viaFunc returns the names by which a pod is led to another, and those of them that count for
// rules that deny alone.
type viaFunc func(fqdn.Name) (via, aliases []fqdn.Name)

// planFor decides what happens to a selected pod's question for a name.
func planFor(v *policy.View, n fqdn.Name, qtype uint16, c *corefile.Config, viaOf viaFunc) plan {
	p := plan{}
	p.decision = decide(v, policy.Query{Name: n, Type: qtype, InCluster: n.HasSuffix(c.ClusterDomain)}, viaOf)
	d := &p.decision
	switch {
	case d.Limit == policy.LimitLabels && !d.Allowed():
		p.action = limited
		if _, completes := completed(v, n, qtype, c, viaOf); completes {
			p.action = notThere // the pod's resolver goes on to the allowed name
		}
		return p
	case d.Limit != policy.NoLimit:
		p.action = limited
		return p
	case d.Denied != nil && d.Reply != policy.Resolve:
		p.action = deny
		return p
	case d.Allowed():
		p.action = open
		return p
	case !v.InForce():
		return p
	}
	base, completes := completed(v, n, qtype, c, viaOf)
	switch {
	case completes && d.Reply == policy.Resolve:
		p.action, p.base = complete, base
	case completes || d.Reply == policy.NXDomain:
		p.action = notThere
	case d.Reply == policy.Refuse:
		p.action = refuse
	}
	return p
}

// decide returns the decision about a question, with the names from which it is followed.
func decide(v *policy.View, q policy.Query, viaOf viaFunc) policy.Decision {
	if v.InForce() {
		via, aliases := viaOf(q.Name)
		q.Via, q.Aliases = via, append(q.Aliases, aliases...)
	}
	return policy.Decide(v, q)
}

// wouldBe returns the verdict if the Audit policies were enforced, and that decision; None
// where the verdict is that of d. Where no policy enforces rules, there is always one.
func wouldBe(v *policy.View, d *policy.Decision) (audit.Verdict, *policy.Decision) {
	w := d
	if d.Audits || slices.ContainsFunc(d.Matches, func(m *policy.Match) bool { return m.Audit }) {
		as := *d
		if as.Query.Would = true; v.Ordered() {
			as = policy.Decide(v, as.Query)
		}
		w = &as
	}
	would := verdictOf(w)
	if v.InForce() && (w == d || would == verdictOf(d)) {
		return audit.None, w
	}
	return would, w
}

// verdictOf returns the verdict of a decision whose answer is as it should be.
func verdictOf(d *policy.Decision) audit.Verdict {
	switch {
	case d.Limit != policy.NoLimit:
		return audit.Refused
	case d.Denied != nil:
		return audit.NameDenied
	case d.Allowed():
		return audit.Allowed
	case d.Reply != policy.Resolve:
		return audit.Refused
	}
	return audit.Unmatched
}

// completed tells whether the question is an allowed name plus one of the suffixes that the
// pod's resolver appends, and what is decided about that name. The longest suffix that leaves
// an allowed name counts. The question counts as an alias: a rule that denies it denies the
// name in this form.
func completed(v *policy.View, n fqdn.Name, qtype uint16, c *corefile.Config, viaOf viaFunc) (policy.Decision, bool) {
	try := func(suffix fqdn.Name) (policy.Decision, bool) {
		short, ok := n.TrimSuffix(suffix)
		if !ok || short == "" {
			return policy.Decision{}, false
		}
		q := policy.Query{Name: short, Type: qtype, InCluster: short.HasSuffix(c.ClusterDomain)}
		if v.Ordered() {
			q.Aliases = []fqdn.Name{n}
		}
		d := decide(v, q, viaOf)
		return d, d.Allowed() && d.Limit == policy.NoLimit
	}
	svc, own := label("svc")+c.ClusterDomain, []fqdn.Name(nil)
	if v.Node == nil {
		own = []fqdn.Name{label(v.Pod.Namespace) + svc, svc, c.ClusterDomain}
	}
	for _, suffix := range own {
		if d, ok := try(suffix); ok {
			return d, true
		}
	}
	for _, suffix := range c.Search {
		if d, ok := try(suffix); ok {
			return d, true
		}
	}
	return policy.Decision{}, false
}

// label returns a name of one label, which is at most 63 bytes of lower case.
func label(s string) fqdn.Name {
	return fqdn.Name(append([]byte{byte(len(s))}, s...))
}
