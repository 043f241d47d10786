package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/enforcer/intercept"
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

// TestServicesThatNamesLeadThrough: cluster IPs, and load balancers of `rebind allow`. A folder of manifests has the
// ranges in their place.
func TestServicesThatNamesLeadThrough(t *testing.T) {
	prefix := netip.MustParsePrefix
	config := corefile.Default()
	config.ClusterRanges = []netip.Prefix{prefix("10.96.0.0/24"), prefix("fd00:96::/112")}
	config.Rebind = []corefile.RebindAllow{{Range: prefix("198.18.0.0/24")}, {Range: prefix("198.18.0.0/25")}}
	c := policy.Cluster{ClusterIPs: addrs("10.96.0.9", "10.98.0.9", "fd00:96::9")}
	c.Services = append(addrs("198.18.0.7", "198.18.1.7"), c.ClusterIPs...)
	for kind, want := range map[*Cluster]string{
		{}:  "[10.96.0.9/32 10.98.0.9/32 198.18.0.7/32 fd00:96::9/128]",
		nil: "[10.96.0.0/24 198.18.0.0/24 fd00:96::/112]",
	} {
		a := &agent{o: Options{Cluster: kind}}
		a.config.Store(config)
		known := c
		if kind == nil {
			known = policy.Cluster{}
		}
		n := intercept.Network{Services: (&network{agent: a}).services(known)}
		diff.Equal(t, want, fmt.Sprint(n.Services))
		for text, is := range map[string]bool{"10.96.0.9": true, "198.18.0.7": true, "fd00:96::9": true, "10.95.255.255": false, "10.96.0.10": kind == nil, "198.18.1.7": false, "fd00:97::9": false, "::": false} {
			if n.IsService(netip.MustParseAddr(text)) != is {
				t.Errorf("%v: %s is one: %v", n.Services, text, !is)
			}
		}
	}
}
