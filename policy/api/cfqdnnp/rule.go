package cfqdnnp

import (
	"fmt"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fields"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/policy/peers"
)

// anywhere are the destinations of a rule that names none.
func anywhere() *ordered.Destinations {
	return &ordered.Destinations{Destinations: peers.Destinations{Anywhere: true}}
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
		r.Partly(path, "%s", fmt.Sprintf(format, args...)+until)
	})
	base := policy.Rule{Path: path, Name: r.RuleName(path+".name", from.Name), Action: action(report, path+".action", from.Action)}
	if from.Unreadable != "" {
		report(path, "%s", from.Unreadable)
	}
	base.Ports = fields.Ports(report, path+".ports", from.Ports, MaxPorts)
	to := &ordered.Destinations{Names: names(report, path+".matches", from.Matches)}
	networks(report, path+".networks", from.Networks, to)
	switch {
	case broken:
		r.AddBroken(base)
	case len(from.Matches)+len(from.Networks) == 0:
		r.Add(base, anywhere())
	default:
		r.Add(base, to)
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

// names reads names and patterns.
func names(report fields.Report, path string, matches []v1alpha1.Match) (out []ordered.Name) {
	if len(matches) > MaxMatches {
		report(path, "%d matches; write at most %d and put the rest into another rule", len(matches), MaxMatches)
		return nil
	}
	for i := range matches {
		at := fmt.Sprintf("%s[%d]", path, i)
		if pattern, ok := report.Match(at, &matches[i]); ok {
			out = append(out, ordered.Name{Path: at, Pattern: pattern})
		}
	}
	return out
}

// networks reads the networks of a rule.
func networks(report fields.Report, path string, networks []v1alpha1.Network, to *ordered.Destinations) {
	if len(networks) > MaxNetworks {
		report(path, "%d networks; write at most %d and put the rest into another rule", len(networks), MaxNetworks)
		return
	}
	for i, text := range networks {
		if p, ok := report.Network(fmt.Sprintf("%s[%d]", path, i), string(text)); ok {
			to.AddNetwork(p, nil)
		}
	}
	to.Normalize(MaxNetworks)
}
