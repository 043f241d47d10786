package xtables

import (
	"math/rand/v2"
	"testing"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/netpol"
)

// TestPeerRulesAreAsManyAsCounted: the compiler bounds NetworkPolicies by netpol.Cost, and
// the rules of the kernel are as many.
func TestPeerRulesAreAsManyAsCounted(t *testing.T) {
	check := func(ports policy.PortSet) {
		t.Helper()
		for _, peer := range []policy.Peer{{Kind: policy.PeerPods, Key: "shop: app=db"}, {Kind: policy.PeerNetworks, Key: "198.51.100.0/24"}, {}} {
			if peer.Kind == policy.PeerAnywhere && ports == policy.AnyPort {
				continue // a list with that asks nothing else
			}
			rendered := 0
			if l := dataplane.NewRuleList([]dataplane.Rule{{Match: dataplane.Match{Peer: peer, Ports: ports}}}); l != nil {
				rendered = len(ruleset{family: 4}.renderList(l))
			}
			if counted := netpol.Cost(ports); rendered != counted {
				t.Errorf("%v on %.300s is %d rules, counted %d", peer, ports, rendered, counted)
			}
		}
	}
	for _, ports := range []policy.PortSet{"", policy.AnyPort, "tcp", "tcp,udp,sctp", "tcp/443", "tcp/1-9", "tcp/443,udp", "tcp,udp/53"} {
		check(ports)
	}
	r := rand.New(rand.NewPCG(1, 15))
	for n := range 200 {
		var ranges []policy.PortRange
		for i := range n {
			first := uint16(1 + 4*i)
			ranges = append(ranges, policy.PortRange{
				Protocol: []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP}[r.IntN(1+n%3)], First: first, Last: first + uint16(r.IntN(1+n%4)),
			})
		}
		check(policy.NewPortSet(ranges...))
	}
}
