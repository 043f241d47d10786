package cfqdnnp

import (
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/fields"
	"github.com/namegate/namegate/policy/api/ordered"
)

// rule adds a rule, once for each kind of its destinations. One with a part that cannot be
// read is broken.
func (r *Policy) rule(path string, from *v1alpha1.ClusterEgressRule) {
	rule := ordered.RuleReader{Policy: &r.Policy, Rule: policy.Rule{Path: path}}
	switch rule.Action = policy.Deny; from.Action { // one that does not exist counts as Deny
	case v1alpha1.ActionAccept:
		rule.Action = policy.Accept
	case v1alpha1.ActionDeny:
	case v1alpha1.ActionPass:
		rule.Action = policy.Pass
	default:
		rule.Fail(path+".action", "%q is no action; write Accept, Deny or Pass", from.Action)
	}
	rule.ReadCommon(from.Name, from.Unreadable, from.Ports)
	rule.ReadMatches(from.Matches)
	rule.ReadNetworks(from.Networks)
	rule.ServerName, _ = fields.Report(rule.Fail).ServerName(path+".serverName", from.ServerName, rule.Ports)
	switch {
	case !rule.ServerName:
	case rule.Action != policy.Accept:
		rule.Fail(path+".serverName", "Require is for rules with action Accept; leave it out of other rules")
	case len(from.Matches) == 0 || len(from.Networks) > 0:
		rule.Fail(path+".serverName", "Require is for rules with matches alone; for networks, write two rules: one with matches and serverName: Require, one with networks")
	}
	rule.Done(len(from.Matches)+len(from.Networks) == 0)
}
