package cfqdnnp

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fields"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/peers"
)

// newRule returns a rule with the settings of the policy.
func (r *Policy) newRule(rule policy.Rule) *policy.Rule {
	rule.Tier, rule.Priority, rule.Policy, rule.Audit, rule.TTL = r.Tier, r.Priority, r.ID, r.Audit, r.ttl
	rule.Denied, rule.DNSDenied = r.Denied, r.DNSDenied
	return &rule
}

// rule adds a rule, once for each kind of its destinations. One with a part that cannot be
// read is broken.
func (r *Policy) rule(path string, from *v1alpha1.ClusterEgressRule) {
	broken := false
	until := "; until then the rule denies every connection"
	if from.Action == v1alpha1.ActionAccept {
		until = "; until then the rule matches nothing"
	}
	report := fields.Report(func(path, format string, args ...any) {
		broken = true
		r.partly(path, "%s", fmt.Sprintf(format, args...)+until)
	})
	base := policy.Rule{Path: path, Name: r.ruleName(path+".name", from.Name), Action: action(report, path+".action", from.Action)}
	if from.Unreadable != "" {
		report(path, "%s", from.Unreadable)
	}
	base.Ports = fields.Ports(report, path+".ports", from.Ports, MaxPorts)
	patterns := patterns(report, path+".matches", from.Matches)
	to := networks(report, path+".networks", from.Networks)
	if broken {
		r.Rules = append(r.Rules, ordered.Rule{Rule: r.newRule(base).Break()})
		return
	}
	if len(from.Matches) == 0 && len(from.Networks) == 0 {
		r.Rules = append(r.Rules, ordered.Rule{Rule: r.newRule(base)}) // anywhere
		return
	}
	if len(patterns) > 0 {
		base.Peer = policy.Peer{Kind: policy.PeerNames}
		rule := r.newRule(base)
		for i, pattern := range patterns {
			rule.Matches = append(rule.Matches, policy.NewMatch(policy.Match{
				Policy: r.ID, Path: fmt.Sprintf("%s.matches[%d]", path, i), Pattern: pattern, Ports: rule.Ports, TTL: r.ttl, Audit: r.Audit, Rule: rule,
			}, r.matches))
			r.matches++
		}
		r.Rules = append(r.Rules, ordered.Rule{Rule: rule})
	}
	if to != nil {
		base.Peer = to.Peer
		r.Rules = append(r.Rules, ordered.Rule{Rule: r.newRule(base), Spec: to})
	}
}

// action reads an action. One that does not exist counts as Deny, of a rule that is broken.
func action(report fields.Report, path string, a v1alpha1.Action) policy.Action {
	switch a {
	case v1alpha1.ActionAccept:
		return policy.Accept
	case v1alpha1.ActionDeny:
		return policy.Deny
	case v1alpha1.ActionPass:
		return policy.Pass
	}
	report(path, "%q is no action; write Accept, Deny or Pass", a)
	return policy.Deny
}

// ruleName returns the name for logs, "" for one that cannot be: that breaks nothing.
func (r *Policy) ruleName(path, name string) string {
	switch {
	case utf8.RuneCountInString(name) > MaxRuleName:
		r.partly(path, "the name has more than %d characters; write fewer (the rule counts as one without a name)", MaxRuleName)
	case strings.ContainsFunc(name, unicode.IsControl):
		r.partly(path, "write the name in one line, without control characters (the rule counts as one without a name)")
	default:
		return name
	}
	return ""
}

// patterns reads names and patterns.
func patterns(report fields.Report, path string, matches []v1alpha1.Match) []fqdn.Pattern {
	if len(matches) > MaxMatches {
		report(path, "%d matches; write at most %d and put the rest into another rule", len(matches), MaxMatches)
		return nil
	}
	var out []fqdn.Pattern
	for i := range matches {
		if pattern, ok := report.Match(fmt.Sprintf("%s[%d]", path, i), &matches[i]); ok {
			out = append(out, pattern)
		}
	}
	return out
}

// networks returns the networks of a rule, as few as they can be; nil for none.
func networks(report fields.Report, path string, networks []v1alpha1.Network) *peers.Spec {
	switch {
	case len(networks) == 0:
		return nil
	case len(networks) > MaxNetworks:
		report(path, "%d networks; write at most %d and put the rest into another rule", len(networks), MaxNetworks)
		return nil
	}
	var d peers.Destinations
	for i, text := range networks {
		if p, ok := report.Network(fmt.Sprintf("%s[%d]", path, i), string(text)); ok {
			d.AddNetwork(p, nil)
		}
	}
	d.Normalize(MaxNetworks)
	if specs := d.ByNumber(); len(specs) > 0 {
		return specs[0]
	}
	return nil
}
