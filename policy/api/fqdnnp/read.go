package fqdnnp

import (
	"fmt"
	"sync"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fields"
	"github.com/namegate/namegate/policy/peers"
)

// The bounds of a policy, as in the schema of its kind.
const (
	MaxRules   = 64
	MaxMatches = 256
	MaxPorts   = 64
)

// Validate returns what in a policy cannot work as it is written, each with its
// path and with what to write instead; nil if all of it works. These are the
// checks of the schema, for policies that no API server has seen.
func Validate(p *v1alpha1.FQDNNetworkPolicy) []policy.Problem {
	return Read(p).Problems
}

// Policy is one FQDNNetworkPolicy as it was read. It is immutable.
type Policy struct {
	ID        string // "namespace/name"
	Spec      v1alpha1.FQDNNetworkPolicySpec
	Selector  *peers.Selector // nil: of no pod
	Audit     bool
	Denied    policy.Denied
	Unmatched policy.Unmatched
	Limits    policy.DNSLimits
	Rules     []*policy.Rule
	Encrypted *policy.Rule // denies DNS over TLS and QUIC; nil: none does
	Problems  []policy.Problem
	ttl       policy.TTL
	matches   int // of the rules
}

// rulePaths is the path of a rule and of its matches.
type rulePaths struct {
	rule    string
	matches [MaxMatches]string
}

// paths returns the paths of rules and matches, which all policies share.
var paths = sync.OnceValue(func() *[MaxRules]rulePaths {
	var all [MaxRules]rulePaths
	for i := range all {
		all[i].rule = fmt.Sprintf("spec.egress[%d]", i)
		for j := range all[i].matches {
			all[i].matches[j] = fmt.Sprintf("%s.matches[%d]", all[i].rule, j)
		}
	}
	return &all
})

// Read reads a policy. A part that cannot work opens nothing and is one of its problems.
func Read(p *v1alpha1.FQDNNetworkPolicy) *Policy {
	r := &Policy{ID: p.Namespace + "/" + p.Name, Spec: p.Spec}
	var err error
	if r.Selector, err = peers.NewSelector(&p.Spec.PodSelector); err != nil {
		r.report(policy.ReasonInvalid, "spec.podSelector", "%v; the policy selects no pod until this is fixed", err)
	}
	if r.settings(); r.Encrypted != nil {
		policy.Invalidate(r.Problems, r.Encrypted)
	}
	rules := p.Spec.Egress
	if len(rules) > MaxRules {
		r.partly("spec.egress", "%d rules; write at most %d and put the rest into another policy", len(rules), MaxRules)
		rules = rules[:MaxRules]
	}
	for i := range rules {
		r.rule(i, &rules[i])
	}
	return r
}

func (r *Policy) report(reason, path, format string, args ...any) {
	r.Problems = policy.AddProblem(r.Problems, "policy "+r.ID, reason, path, format, args...)
}

func (r *Policy) partly(path, format string, args ...any) {
	r.report(policy.ReasonPartiallyInvalid, path, format, args...)
}

// settings reads the fields that are not rules.
func (r *Policy) settings() {
	report := fields.Report(r.partly)
	r.Audit = report.Audit(r.Spec.Enforcement)
	r.Denied = report.Denied(r.Spec.Denied)
	r.Unmatched = report.Reply("spec.dns.unmatched", r.Spec.DNS.Unmatched, v1alpha1.UnmatchedResolve)
	r.Limits = report.Limits(&r.Spec.DNS.DNSLimits)
	r.ttl = report.TTL(&r.Spec.TTL)
	if r.Limits.NoEncrypted = report.DeniesEncrypted(r.Spec.DNS.Encrypted); r.Limits.NoEncrypted {
		r.Encrypted = &policy.Rule{Action: policy.Deny, Ports: fields.EncryptedPorts, Policy: r.ID, Path: fields.EncryptedPath, Audit: r.Audit, Denied: r.Denied}
	}
}

// rule adds a rule that can match something and opens some port.
func (r *Policy) rule(index int, from *v1alpha1.EgressRule) {
	known := &paths()[index]
	path := known.rule
	ports := fields.Ports(r.partly, path+".ports", from.Ports, MaxPorts)
	matches := from.Matches
	if len(matches) == 0 {
		r.partly(path+".matches", "a rule without matches opens nothing; write a name, or pattern \"*\" for every name")
	}
	if len(matches) > MaxMatches {
		r.partly(path+".matches", "%d matches; write at most %d and put the rest into another rule", len(matches), MaxMatches)
		matches = matches[:MaxMatches]
	}
	rule := &policy.Rule{Peer: policy.Peer{Kind: policy.PeerNames}, Ports: ports, TTL: r.ttl, Policy: r.ID, Path: path, Audit: r.Audit}
	for i := range matches {
		at := known.matches[i]
		pattern, ok := fields.Report(r.partly).Match(at, &matches[i])
		if !ok || ports == "" {
			continue
		}
		rule.Matches = append(rule.Matches, policy.NewMatch(rule, at, pattern, r.matches))
		r.matches++
	}
	if len(rule.Matches) > 0 {
		r.Rules = append(r.Rules, rule)
	}
}
