package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// TestGuardLearnsNewAddresses: an address that the node gets while the agent runs, and
// those of host-network pods, reach the guard; each change is set once.
func TestGuardLearnsNewAddresses(t *testing.T) {
	var sets []proxy.Cluster
	var has []netip.Addr
	var fails error
	var log bytes.Buffer
	n := &nodeAddresses{
		read:   func() ([]netip.Addr, error) { return slices.Clone(has), fails },
		parked: func(policy.Cluster) []netip.Prefix { return nil },
		set:    func(c proxy.Cluster) { sets = append(sets, c) },
		log:    slog.New(slog.NewTextHandler(&log, nil)),
	}
	expect := func(tells int, own, peers []netip.Addr) {
		t.Helper()
		n.poll()
		diff.MustEqual(t, tells, len(sets), "times told")
		if c := sets[tells-1]; !slices.Equal(c.Nodes, own) || !slices.Equal(c.Peers, peers) {
			t.Errorf("told %+v", c)
		}
	}
	set := func(err error, list ...string) { has, fails = addrs(list...), err }
	set(nil, "192.0.2.2", "192.0.2.1")
	expect(1, addrs("192.0.2.1", "192.0.2.2"), nil)
	expect(1, addrs("192.0.2.1", "192.0.2.2"), nil)
	pods := rollout.State{Input: compile.Input{Pods: []policy.Pod{
		{HostNetwork: true, IPs: addrs("192.0.2.9", "2001:db8::9")}, {HostNetwork: true, IPs: addrs("192.0.2.9")}, {IPs: addrs("10.1.0.2")},
	}}}
	n.learn(pods)
	n.learn(pods)
	expect(2, addrs("192.0.2.1", "192.0.2.2"), addrs("192.0.2.9", "2001:db8::9"))
	set(errors.New("netlink: no buffer space"))
	n.poll()
	expect(2, addrs("192.0.2.1", "192.0.2.2"), addrs("192.0.2.9", "2001:db8::9"))
	set(nil, "192.0.2.1", "198.18.0.77")
	expect(3, addrs("192.0.2.1", "198.18.0.77"), addrs("192.0.2.9", "2001:db8::9"))
	service := policy.Cluster{Nodes: addrs("192.0.2.7"), Services: addrs("10.96.0.1")}
	n.learn(rollout.State{Input: pods.Input, Cluster: service})
	n.learn(rollout.State{Input: pods.Input, Cluster: service})
	expect(4, addrs("192.0.2.1", "198.18.0.77"), addrs("192.0.2.7", "192.0.2.9", "2001:db8::9"))
	diff.Error(t, addrs("10.96.0.1"), sets[3].Services, "the Services that the guard was told")
	n.learn(rollout.State{})
	expect(5, addrs("192.0.2.1", "198.18.0.77"), nil)
	diff.Equal(t, 1, strings.Count(log.String(), "no buffer space"), "times that the failure is logged")
}

// TestGuardLearnsResolvers: the addresses behind the resolver's Service reach the guard
// as they change.
func TestGuardLearnsResolvers(t *testing.T) {
	ref := policy.ServiceRef{Namespace: "kube-system", Name: "kube-dns"}
	var sets proxy.Cluster
	n := &nodeAddresses{
		parked: func(policy.Cluster) []netip.Prefix { return nil },
		set:    func(c proxy.Cluster) { sets = c },
	}
	outside, err := fqdn.ParseName("www.example.org")
	fatal.If(t, err)
	for _, now := range []string{"198.18.0.1", "198.18.0.2"} {
		n.learn(rollout.State{Cluster: policy.Cluster{Resolvers: map[policy.ServiceRef]policy.Resolver{ref: {
			ClusterIPs: addrs("198.18.0.10"), Endpoints: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(now), 53)},
		}}}})
		g := sets.Guard(corefile.Default())
		for _, a := range addrs("198.18.0.1", "198.18.0.2", "198.18.0.10", "198.18.0.11") {
			known := a == netip.MustParseAddr(now) || a == netip.MustParseAddr("198.18.0.10")
			if why := g.Blocked(outside, a, nil); (why != "") != known {
				t.Errorf("while %s is the resolver, %s is blocked: %q", now, a, why)
			}
		}
	}
}
