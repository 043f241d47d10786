package proxy

import (
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/audit"
	"github.com/namegate/namegate/proxy/corefile"
)

// action is what happens to a selected pod's question.
type action uint8

const (
	pass     action = iota // the upstream's answer, which opens nothing
	open                   // the upstream's answer, whose addresses are granted
	complete               // pass, unless the upstream completes the search path
	notThere               // NXDOMAIN, nobody is asked
	refuse                 // REFUSED, nobody is asked
)

// plan is what the view and the configuration say about a question, before
// anybody was asked.
type plan struct {
	action   action
	decision policy.Decision // about the question
	// base is the allowed name that the question is with a search suffix, where
	// action is complete.
	base         policy.Name
	baseDecision policy.Decision
	// would is the verdict if the Audit policies were enforced; None where they
	// say nothing about the question.
	would audit.Verdict
}

// planFor decides what happens to a selected pod's question for a name.
func planFor(v *policy.View, n policy.Name, c *corefile.Config) plan {
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
	if d.Audited() {
		p.would = audit.Allowed
	}
	base, baseDecision, completes := completed(v, n, c)
	inCluster := n.HasSuffix(c.ClusterDomain)
	switch {
	case completes && (inCluster || v.Unmatched == policy.Resolve):
		p.action, p.base, p.baseDecision = complete, base, baseDecision
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

// completed tells whether the question is an allowed name plus one of the
// suffixes that the pod's resolver appends, and which name. The longest suffix
// that leaves an allowed name counts.
func completed(v *policy.View, n policy.Name, c *corefile.Config) (policy.Name, policy.Decision, bool) {
	try := func(suffix policy.Name) (policy.Name, policy.Decision, bool) {
		base, ok := n.TrimSuffix(suffix)
		if !ok || base == "" {
			return "", policy.Decision{}, false
		}
		d := v.Decide(base)
		return base, d, d.Allowed()
	}
	svc := label("svc") + c.ClusterDomain
	for _, suffix := range []policy.Name{label(v.Pod.Namespace) + svc, svc, c.ClusterDomain} {
		if base, d, ok := try(suffix); ok {
			return base, d, true
		}
	}
	for _, suffix := range c.Search {
		if base, d, ok := try(suffix); ok {
			return base, d, true
		}
	}
	return "", policy.Decision{}, false
}

// label returns a name of one label, which is at most 63 bytes of lower case.
func label(s string) policy.Name {
	return policy.Name(append([]byte{byte(len(s))}, s...))
}
