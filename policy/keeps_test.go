package policy_test

import (
	"net/netip"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestKeeps: an open connection ends by a rule of our kinds or by our isolation, wherever in
// the order these stand; a standard's rule that accepts keeps it from later rules.
func TestKeeps(t *testing.T) {
	rule := func(tier policy.Tier, action policy.Action, standard bool) *policy.Rule {
		return &policy.Rule{Tier: tier, Action: action, Standard: standard, Ports: policy.AnyPort}
	}
	broken := func(tier policy.Tier, standard bool) *policy.Rule { return rule(tier, policy.Pass, standard).Break() }
	const standard, ours = true, false
	flow := policy.Flow{Protocol: policy.TCP, Dialled: netip.MustParseAddrPort("192.0.2.1:443"), Reached: netip.MustParseAddrPort("192.0.2.1:443")}
	for name, c := range map[string]struct {
		enforced        bool
		networkPolicies []string
		rules           []*policy.Rule
		want            bool
	}{
		"allowed":                             {rules: []*policy.Rule{rule(policy.Admin, policy.Accept, standard), rule(policy.Admin, policy.Deny, ours)}, want: true},
		"a standard denies":                   {rules: []*policy.Rule{rule(policy.Admin, policy.Deny, standard)}, want: true},
		"a broken standard denies":            {rules: []*policy.Rule{broken(policy.Baseline, standard)}, want: true},
		"ours denies":                         {rules: []*policy.Rule{rule(policy.Admin, policy.Deny, ours)}},
		"a broken rule of ours denies":        {rules: []*policy.Rule{broken(policy.Baseline, ours)}},
		"ours denies after a standard":        {rules: []*policy.Rule{rule(policy.Admin, policy.Deny, standard), rule(policy.Baseline, policy.Deny, ours)}},
		"ours accepts after a standard":       {rules: []*policy.Rule{rule(policy.Admin, policy.Deny, standard), rule(policy.Admin, policy.Accept, ours), rule(policy.Baseline, policy.Deny, ours)}, want: true},
		"ours isolates after a standard":      {enforced: true, rules: []*policy.Rule{rule(policy.Admin, policy.Deny, standard)}},
		"a NetworkPolicy isolates":            {networkPolicies: []string{"shop/deny"}, rules: []*policy.Rule{rule(policy.Admin, policy.Pass, ours)}, want: true},
		"beside one ours isolates":            {enforced: true, networkPolicies: []string{"shop/deny"}, rules: []*policy.Rule{rule(policy.Admin, policy.Pass, standard)}},
		"a NetworkPolicy replaces a Baseline": {networkPolicies: []string{"shop/deny"}, rules: []*policy.Rule{rule(policy.Admin, policy.Pass, ours), rule(policy.Baseline, policy.Deny, ours)}, want: true},
	} {
		v := &policy.View{Enforced: c.enforced, NetworkPolicies: c.networkPolicies, Rules: policytest.Rules(c.rules...)}
		diff.Equal(t, c.want, policy.Keeps(v, nil, &flow), name)
	}
}
