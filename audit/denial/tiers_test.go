package denial

import (
	"net/netip"
	"testing"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// TestCoverOfTiers: a match that denies opens nothing, on its port or before one that accepts.
func TestCoverOfTiers(t *testing.T) {
	pattern, err := fqdn.ParsePattern("a.test")
	fatal.If(t, err)
	deny := &policy.Rule{Tier: policy.Admin, Action: policy.Deny, Peer: policy.Peer{Kind: policy.PeerNames}, Ports: "tcp/25", Policy: "no-smtp"}
	accept := &policy.Rule{Peer: policy.Peer{Kind: policy.PeerNames}, Ports: policy.AnyPort, Policy: "shop/p"}
	v := &policy.View{Enforced: true, Policies: []string{"shop/p"}}
	for _, r := range []*policy.Rule{deny, accept} {
		r.Matches = []*policy.Match{policy.NewMatch(policy.Match{Policy: r.Policy, Pattern: pattern, Ports: r.Ports, Rule: r}, 0)}
		v.Rules = append(v.Rules, r)
	}
	v.Index = policy.NewIndex(v.Rules, 2)
	n, _ := pattern.Exact()
	for to, want := range map[string]bool{"192.0.2.1:25": false, "192.0.2.1:443": true} {
		at := key{dialled: netip.MustParseAddrPort(to), protocol: policy.TCP, verdict: audit.Denied}
		if m, opens := cover(v, at, n); m == nil || opens != want || opens && m.Rule != accept {
			t.Errorf("%s: %+v, opens %v", to, m, opens)
		}
	}
}
