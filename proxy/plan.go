package proxy

import (
	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/corefile"
)

// action is what happens to a selected pod's question.
type action uint8

const (
	pass     action = iota // the upstream's answer, which opens nothing
	open                   // the upstream's answer, whose addresses are granted
	complete               // pass, unless the upstream completes the search path
	notThere               // NXDOMAIN, no upstream is asked
	refuse                 // REFUSED, no upstream is asked
)

// plan is the decision of the view and the configuration about a question, before an
// upstream is asked.
type plan struct {
	action   action
	decision policy.Decision // about the question, or about via
	// via is the allowed name whose answer pointed at the question, "" where it
	// took none.
	via fqdn.Name
	// base is the allowed name that the question is with a search suffix, where
	// action is complete.
	base         fqdn.Name
	baseVia      fqdn.Name
	baseDecision policy.Decision
	// would is the verdict if the Audit policies were enforced; None where they
	// say nothing about the question.
	would audit.Verdict
}

// viaFunc returns the allowed name by which a pod is led to another.
type viaFunc func(fqdn.Name) (fqdn.Name, bool)

// planFor decides what happens to a selected pod's question for a name.
func planFor(v *policy.View, n fqdn.Name, c *corefile.Config, viaOf viaFunc) plan {
	d := v.Decide(n)
	p := plan{decision: d}
	if !v.Enforced {
		p.would = audit.Unmatched
		if len(d.Matches) > 0 {
			p.would = audit.Allowed
		}
		return p
	}
	if d.Allowed() {
		p.action = open
		return p
	}
	if via, to, ok := through(v, n, viaOf); ok {
		p.action, p.decision, p.via = open, to, via
		return p
	}
	if d.Audited() {
		p.would = audit.Allowed
	}
	base, completes := completed(v, n, c, viaOf)
	inCluster := n.HasSuffix(c.ClusterDomain)
	switch {
	case completes && (inCluster || v.Unmatched == policy.Resolve):
		p.action, p.base, p.baseVia, p.baseDecision = complete, base.name, base.via, base.decision
	case completes:
		p.action = notThere
	case inCluster || v.Unmatched == policy.Resolve:
		p.action = pass
	case v.Unmatched == policy.NXDomain:
		p.action = notThere
	default:
		p.action = refuse
	}
	return p
}

// through returns the allowed name from which n is followed, and the view's decision
// about that name.
func through(v *policy.View, n fqdn.Name, viaOf viaFunc) (fqdn.Name, policy.Decision, bool) {
	via, ok := viaOf(n)
	if !ok {
		return "", policy.Decision{}, false
	}
	d := v.Decide(via)
	return via, d, d.Allowed()
}

// base is an allowed name to which a suffix was appended.
type base struct {
	name, via fqdn.Name
	decision  policy.Decision
}

// completed tells whether the question is an allowed name plus one of the
// suffixes that the pod's resolver appends, and which name. The longest suffix
// that leaves an allowed name counts.
func completed(v *policy.View, n fqdn.Name, c *corefile.Config, viaOf viaFunc) (base, bool) {
	try := func(suffix fqdn.Name) (base, bool) {
		short, ok := n.TrimSuffix(suffix)
		if !ok || short == "" {
			return base{}, false
		}
		if d := v.Decide(short); d.Allowed() {
			return base{name: short, decision: d}, true
		}
		via, d, ok := through(v, short, viaOf)
		return base{short, via, d}, ok
	}
	svc := label("svc") + c.ClusterDomain
	for _, suffix := range []fqdn.Name{label(v.Pod.Namespace) + svc, svc, c.ClusterDomain} {
		if b, ok := try(suffix); ok {
			return b, true
		}
	}
	for _, suffix := range c.Search {
		if b, ok := try(suffix); ok {
			return b, true
		}
	}
	return base{}, false
}

// label returns a name of one label, which is at most 63 bytes of lower case.
func label(s string) fqdn.Name {
	return fqdn.Name(append([]byte{byte(len(s))}, s...))
}
