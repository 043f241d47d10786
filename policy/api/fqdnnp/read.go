package fqdnnp

import (
	"fmt"
	"sync"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fields"
	"github.com/namegate/namegate/policy/api/ordered"
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
	ordered.Policy              // its ID is "namespace/name"
	Encrypted      *policy.Rule // denies DNS over TLS and QUIC; nil: none does
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
	id := p.Namespace + "/" + p.Name
	r := &Policy{Policy: ordered.Policy{ID: id, Object: "policy " + id}}
	var err error
	if r.Pods, err = peers.NewSelector(&p.Spec.PodSelector); err != nil {
		r.Problems = policy.AddProblem(nil, r.Object, policy.ReasonInvalid, "spec.podSelector", "%v; the policy selects no pod until this is fixed", err)
	}
	if r.settings(&p.Spec); r.Encrypted != nil {
		policy.Invalidate(r.Problems, r.Encrypted)
	}
	rules := p.Spec.Egress
	if len(rules) > MaxRules {
		r.Partly("spec.egress", "%d rules; write at most %d and put the rest into another policy", len(rules), MaxRules)
		rules = rules[:MaxRules]
	}
	for i := range rules {
		r.rule(i, &rules[i])
	}
	return r
}

// settings reads the fields that are not rules.
func (r *Policy) settings(spec *v1alpha1.FQDNNetworkPolicySpec) {
	report := fields.Report(r.Partly)
	r.Audit = report.Audit(spec.Enforcement)
	r.Denied = report.Denied(spec.Denied)
	r.Unmatched = report.Reply("spec.dns.unmatched", spec.DNS.Unmatched, v1alpha1.UnmatchedResolve)
	r.Limits = report.Limits(&spec.DNS.DNSLimits)
	r.TTL = report.TTL(&spec.TTL)
	if r.Limits.NoEncrypted = report.DeniesEncrypted(spec.DNS.Encrypted); r.Limits.NoEncrypted {
		r.Encrypted = &policy.Rule{Action: policy.Deny, Ports: fields.EncryptedPorts, Policy: r.ID, Path: fields.EncryptedPath, Audit: r.Audit, Denial: policy.Denial{Denied: r.Denied}}
	}
}

// rule adds a rule that can match something and opens some port.
func (r *Policy) rule(index int, from *v1alpha1.EgressRule) {
	known := &paths()[index]
	path := known.rule
	ports := fields.Ports(r.Partly, path+".ports", from.Ports, MaxPorts)
	matches := from.Matches
	if len(matches) == 0 {
		r.Partly(path+".matches", "a rule without matches opens nothing; write a name, or pattern \"*\" for every name")
	}
	if len(matches) > MaxMatches {
		r.Partly(path+".matches", "%d matches; write at most %d and put the rest into another rule", len(matches), MaxMatches)
		matches = matches[:MaxMatches]
	}
	to, report := &ordered.Destinations{Names: make([]ordered.Name, 0, len(matches))}, fields.Report(r.Partly)
	required, ok := report.ServerName(path+".serverName", from.ServerName, ports)
	if !ok {
		ports = ""
	}
	for i := range matches {
		at := known.matches[i]
		if pattern, ok := report.Match(at, &matches[i]); ok && ports != "" {
			to.Names = append(to.Names, ordered.Name{Path: at, Pattern: pattern})
		}
	}
	r.Add(policy.Rule{Path: path, Ports: ports, ServerName: required}, to)
}
