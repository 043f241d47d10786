package print

import (
	"testing"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestRulesInOrder: beside cluster policies the rules are printed as they are asked, in
// place of matches and peers.
func TestRulesInOrder(t *testing.T) {
	p, out, _ := printed(FormatTable, false)
	fatal.If(t, p.Explained(&explain.Explanation{
		Pod: "shop/cart", To: "a.test:443/tcp", Verdict: explain.Allowed, Reason: "so",
		Rules: []explain.Rule{
			{Tier: "Admin", Action: "Deny", Ports: "tcp/25"}, // of a policy that may not be read
			{Tier: "Namespace", Action: "Accept", Policy: "shop/p", Path: "spec.egress[0]", To: "names", Address: "192.0.2.1", Ports: "any", OnPort: true, Decides: true},
		},
		Matches: []explain.Match{{Name: "a.test", Policy: "shop/p"}}, Peers: []explain.Peer{{Policy: "shop/np"}},
	}))
	want := `shop/cart to a.test:443/tcp: allowed
so.

node            -
rules in order  1. Admin Deny, on tcp/25, not on this port
                2. Namespace Accept by shop/p (spec.egress[0]) to names, on any: decides
`
	if got := out.String(); got != want {
		t.Errorf("%q", got)
	}
}
