package ordered

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/peers"
)

// Policy is one policy as it was read. It is immutable then.
type Policy struct {
	ID       string // "namespace/name", or what no other cluster policy of any kind has
	Object   string // the name by which problems name it
	Standard bool   // a ClusterNetworkPolicy
	Tier     policy.Tier
	Priority int32
	// Namespaces selects by the labels of pods' namespaces, Pods by their own. Both are nil
	// for a policy that selects nothing. A policy of a namespace has Pods alone.
	Namespaces, Pods *peers.Selector
	// Nodes selects nodes by their labels, in place of Namespaces and Pods. Traffic and Interfaces are of
	// all rules of such a policy.
	Nodes      *peers.Selector
	Traffic    policy.Traffic
	Interfaces []string
	Audit      bool
	Denied     policy.Denied
	DNSDenied  policy.Unmatched
	Unmatched  policy.Unmatched
	Limits     policy.DNSLimits
	TTL        policy.TTL
	Rules      []Rule // in order, those for ingress last
	Problems   []policy.Problem
	matches    int // of Rules
}

// Rule is one rule, for one kind of its peers.
type Rule struct {
	*policy.Rule
	Spec *peers.Spec // of a rule with peers, else nil
	Cost int         // of the ports of a NetworkPolicy's rule
}

// The bounds of both kinds, as in their schemas.
const (
	MaxPriority = 1000
	MaxRuleName = 100
)

// Place returns the place of the policy in the order of evaluation.
func (p *Policy) Place() policy.ClusterPolicy {
	return policy.ClusterPolicy{Tier: p.Tier, Priority: p.Priority, Standard: p.Standard, Name: p.ID}
}

// Selects tells whether the policy selects a pod, by the labels of its namespace and by its own.
func (p *Policy) Selects(namespace, pod map[string]string) bool {
	return p.Pods != nil && p.Namespaces.Matches(namespace) && p.Pods.Matches(pod)
}

// Partly reports a part that cannot work.
func (p *Policy) Partly(path, format string, args ...any) {
	p.Problems = policy.AddProblem(p.Problems, p.Object, policy.ReasonPartiallyInvalid, path, format, args...)
}

// Invalid reports that the policy selects nothing.
func (p *Policy) Invalid(path, format string, args ...any) {
	p.Problems = policy.AddProblem(p.Problems, p.Object, policy.ReasonInvalid, path, format+"; the policy selects nothing until this is fixed", args...)
}

// Invalidate makes a policy with a problem of ReasonInvalid select nothing.
func (p *Policy) Invalidate() {
	rules := make([]*policy.Rule, len(p.Rules))
	for i, r := range p.Rules {
		rules[i] = r.Rule
	}
	if policy.Invalidate(p.Problems, rules...) {
		p.Namespaces, p.Pods, p.Nodes = nil, nil, nil
	}
}

// RuleName returns the name of a rule for logs, "" for one that cannot be: that breaks nothing.
func (p *Policy) RuleName(path, name string) string {
	if utf8.RuneCountInString(name) <= MaxRuleName && !strings.ContainsFunc(name, unicode.IsControl) {
		return name
	}
	p.Partly(path, "write at most %d characters in one line, without control characters (the rule counts as one without a name)", MaxRuleName)
	return ""
}

// Destinations are the destinations of a rule, or for ingress its sources.
type Destinations struct {
	peers.Destinations
	Names     []Name
	PortNames []peers.PortName // sorted, each once
}

// Name is one name or pattern of a rule.
type Name struct {
	Path string
	fqdn.Pattern
}

// Add adds a rule with the settings of the policy: once for each kind of its destinations, or
// sources, one after the other. Named ports of a rule for ingress are the subject's.
func (p *Policy) Add(from policy.Rule, to *Destinations) {
	if len(to.Names) > 0 {
		rule := p.add(from, policy.Peer{Kind: policy.PeerNames}, nil)
		rule.Matches = make([]*policy.Match, 0, len(to.Names))
		for _, n := range to.Names {
			rule.Matches = append(rule.Matches, policy.NewMatch(rule, n.Path, n.Pattern, p.matches))
			p.matches++
		}
	}
	if from.Ingress {
		from.PortNames = peers.NamedPorts(to.PortNames)
	}
	if from.Ports != "" || len(from.PortNames) > 0 {
		for _, spec := range to.ByNumber() {
			p.add(from, spec.Peer, spec)
		}
	}
	if spec := to.ByName(to.PortNames); spec != nil && !from.Ingress {
		from.Ports = policy.AnyPort
		p.add(from, spec.Peer, spec)
	}
}

// AddBroken adds a rule of which a part cannot be read.
func (p *Policy) AddBroken(from policy.Rule) {
	rule := p.add(from, policy.Peer{}, nil)
	p.Rules[len(p.Rules)-1].Rule = rule.Break()
}

func (p *Policy) add(rule policy.Rule, to policy.Peer, spec *peers.Spec) *policy.Rule {
	rule.Tier, rule.Priority, rule.Standard, rule.Policy, rule.Audit, rule.TTL = p.Tier, p.Priority, p.Standard, p.ID, p.Audit, p.TTL
	rule.Denied, rule.DNSDenied, rule.Peer, rule.Traffic, rule.Interfaces = p.Denied, p.DNSDenied, to, p.Traffic, p.Interfaces
	if to.Kind == policy.PeerAnywhere {
		spec = nil
	}
	p.Rules = append(p.Rules, Rule{Rule: &rule, Spec: spec})
	return &rule
}
