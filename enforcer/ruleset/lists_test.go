package ruleset

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestCovers compares covers with addresses that are asked one by one.
func TestCovers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	network := func() netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(16))}), 28+r.IntN(5)).Masked()
	}
	seen := map[bool]int{}
	for range 5000 {
		var networks []netip.Prefix
		for range r.IntN(6) {
			networks = append(networks, network())
		}
		n, want := network(), true
		for a := n.Addr(); n.Contains(a); a = a.Next() {
			want = want && slices.ContainsFunc(networks, func(o netip.Prefix) bool { return o.Contains(a) })
		}
		seen[want]++
		if got := covers(networks, n); got != want {
			t.Fatalf("%v cover %s: %v", networks, n, got)
		}
	}
	if seen[true] < 100 || seen[false] < 100 {
		t.Errorf("the rounds do not try both: %v", seen)
	}
}

// TestLostMembersStay: members that the next state lacks stay until they are trimmed, and
// those that come back are not lost.
func TestLostMembersStay(t *testing.T) {
	pods, networks := policy.Peer{Kind: policy.PeerPods, Key: "pods"}, policy.Peer{Kind: policy.PeerNetworks, Key: "networks"}
	list := dataplane.NewRuleList([]dataplane.Rule{{Peer: pods, Ports: policy.AnyPort}, {Peer: networks, Ports: "tcp/80"}})
	type members = func(policy.Peer) *policy.PeerSet
	subjects := dataplane.Subjects{policytest.Ref("web"): {Peers: list}}
	l := NewLists()
	stage := func(addrs, of string) members {
		all := map[policy.Peer]*policy.PeerSet{pods: {Peer: pods, Addrs: policytest.Addrs(addrs)}, networks: {Peer: networks}}
		for _, a := range policytest.Addrs(of) {
			all[networks].Networks = append(all[networks].Networks, netip.PrefixFrom(a, 24))
		}
		members := func(peer policy.Peer) *policy.PeerSet { return all[peer] }
		l.Stage(subjects, members)
		return members
	}
	expect := func(now members, addrs, of int, lost ...string) {
		t.Helper()
		if a, n := l.peerSet(pods, now(pods)).Addrs, l.peerSet(networks, now(networks)).Networks; len(a) != addrs || len(n) != of {
			t.Errorf("members %v and %v", a, n)
		}
		var got []string
		for _, all := range l.Release(subjects, now) {
			for _, a := range all {
				got = append(got, a.String())
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, lost) {
			t.Errorf("lost %v, want %v", got, lost)
		}
	}
	expect(stage("10.2.0.1 10.2.0.2", "192.0.2.0"), 2, 1)
	expect(stage("10.2.0.2 10.2.0.3", "198.51.100.0"), 3, 2, "10.2.0.1", "192.0.2.0")
	last := stage("10.2.0.1", "198.51.100.0")
	expect(last, 3, 2, "10.2.0.2", "10.2.0.3", "192.0.2.0")
	l.Trim()
	expect(last, 1, 1)
	if sets, entries := l.Sizes(); sets != 4 || entries != 2 {
		t.Errorf("%d sets, %d entries", sets, entries)
	}
	// Staged beside a list that accepts everything, the list asks its peers only when it is in force.
	l.Release(nil, last)
	l.Release(subjects, last)
	expect(stage("10.2.0.4", "198.51.100.0"), 2, 1, "10.2.0.1")
	if l.Release(nil, last); len(l.peers) != 0 {
		t.Errorf("peers are left that no rule asks: %v", l.peers)
	}
}
