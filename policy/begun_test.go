package policy_test

import (
	"net/netip"
	"testing"

	"github.com/namegate/namegate/policy"
)

// TestBegun: a connection that is open already is denied by rules of kinds of ours alone, and
// by the isolation of an FQDNNetworkPolicy.
func TestBegun(t *testing.T) {
	rule := func(tier policy.Tier, action policy.Action, standard bool) *policy.Rule {
		return &policy.Rule{Tier: tier, Action: action, Standard: standard, Peer: policy.Peer{Kind: policy.PeerAnywhere}, Ports: policy.AnyPort}
	}
	broken := rule(policy.Admin, policy.Pass, true).Break()
	isolated := func(v policy.View) policy.View { v.Enforced = true; return v }
	for _, c := range []struct {
		name        string
		view        policy.View
		fresh, open bool
	}{
		{"standard Deny", policy.View{Rules: []*policy.Rule{rule(policy.Admin, policy.Deny, true)}}, false, true},
		{"standard Deny, Baseline", policy.View{Rules: []*policy.Rule{rule(policy.Baseline, policy.Deny, true)}}, false, true},
		{"broken standard Pass", policy.View{Rules: []*policy.Rule{broken}}, false, true},
		{"our Deny", policy.View{Rules: []*policy.Rule{rule(policy.Admin, policy.Deny, false)}}, false, false},
		{"our Deny behind a standard one", policy.View{Rules: []*policy.Rule{rule(policy.Admin, policy.Deny, true), rule(policy.Baseline, policy.Deny, false)}}, false, false},
		{"standard Deny, FQDNNetworkPolicy", isolated(policy.View{Rules: []*policy.Rule{rule(policy.Admin, policy.Deny, true)}}), false, false},
		{"NetworkPolicy", policy.View{NetworkPolicies: []string{"n"}, Rules: []*policy.Rule{rule(policy.Admin, policy.Pass, true)}}, false, true},
		{"standard Accept", policy.View{Rules: []*policy.Rule{rule(policy.Admin, policy.Accept, true)}}, true, true},
	} {
		f := policy.Flow{Protocol: policy.TCP, Dialled: netip.MustParseAddrPort("192.0.2.1:80"), Reached: netip.MustParseAddrPort("192.0.2.1:80")}
		fresh, _ := policy.Evaluate(&c.view, &policy.Snapshot{}, &f)
		f.Begun = true
		open, _ := policy.Evaluate(&c.view, &policy.Snapshot{}, &f)
		if fresh != c.fresh || open != c.open {
			t.Errorf("%s: new %t, open %t, want %t, %t", c.name, fresh, open, c.fresh, c.open)
		}
	}
}
