package ruleset

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/enforcer/ruleset/lists"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestLostNetworks compares what networks lose with addresses that are asked one by one, and the union of both.
func TestLostNetworks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	networks := func() (out []netip.Prefix) {
		for range r.IntN(6) {
			out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(16))}), 28+r.IntN(5)).Masked())
		}
		return lists.Disjoint(out)
	}
	has := func(networks []netip.Prefix, a netip.Addr) bool {
		return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) })
	}
	seen := map[bool]int{}
	for range 5000 {
		was, is := networks(), networks()
		both := union("", policy.PeerNetworks, &policy.PeerSet{Networks: was}, &policy.PeerSet{Networks: is}).Networks
		loses := false
		for a, n := netip.MustParseAddr("192.0.2.0"), 0; n < 16; a, n = a.Next(), n+1 {
			loses = loses || has(was, a) && !has(is, a)
			if in := slices.IndexFunc(both, func(n netip.Prefix) bool { return n.Contains(a) }); in >= 0 != (has(was, a) || has(is, a)) || in >= 0 && has(both[in+1:], a) {
				t.Fatalf("the union of %v and %v is %v", was, is, both)
			}
		}
		seen[loses]++
		if lost := Lost(layout.PeerSet{Networks: was}, layout.PeerSet{Networks: is}); len(lost) > 0 != loses || slices.ContainsFunc(lost, func(a netip.Addr) bool { return !has(was, a) || has(is, a) }) {
			t.Fatalf("%v lose %v of %v", is, lost, was)
		}
	}
	if seen[true] < 100 || seen[false] < 100 {
		t.Errorf("the rounds do not try both: %v", seen)
	}
}

// TestLostMembers: members that the next snapshot does not have are lost, each once, and no others.
func TestLostMembers(t *testing.T) {
	pods, ports := policy.Peer{Kind: policy.PeerPods, Key: "pods"}, policy.Peer{Kind: policy.PeerPorts, Key: "ports"}
	snapshot := func(addrs string, port uint16) *policy.Snapshot {
		return policy.NewSnapshot(policy.Snapshot{PeerSets: []*policy.PeerSet{
			{Peer: pods, Addrs: policytest.Addrs(addrs)}, {Peer: ports, Ports: []policy.PeerPort{{Addr: policytest.Addrs("10.2.0.9")[0], Protocol: policy.TCP, Port: port}}},
		}}, nil, nil)
	}
	was := snapshot("10.2.0.1 10.2.0.2", 80)
	lost := LostMembers([]policy.Peer{pods, ports, {Kind: policy.PeerPods, Key: "new"}}, was, snapshot("10.2.0.2 10.2.0.3", 81))
	if len(lost) != 2 || !slices.Equal(lost[pods], policytest.Addrs("10.2.0.1")) || !slices.Equal(lost[ports], policytest.Addrs("10.2.0.9")) {
		t.Errorf("lost are %v", lost)
	}
	if lost := LostMembers([]policy.Peer{pods, ports}, was, snapshot("10.2.0.3 10.2.0.2 10.2.0.1", 80)); len(lost[pods])+len(lost[ports]) != 0 {
		t.Errorf("lost are %v", lost)
	}
	if lost := LostMembers([]policy.Peer{pods}, nil, was); len(lost) != 0 {
		t.Errorf("of no snapshot lost are %v", lost)
	}
}
