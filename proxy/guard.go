package proxy

import (
	"net/netip"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
)

// The clouds' metadata services: AWS, Google, Azure and others; AWS over IPv6;
// Azure's wire server; Alibaba Cloud.
var metadata = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"),
	netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("100.100.100.200"),
}

// never are the ranges that no name can honestly lead a pod to, with the reason.
var never = []struct {
	prefix netip.Prefix
	reason string
}{
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"}, // RFC 1112 §4, with the broadcast address
}

// Guard says which addresses a name must not open (DESIGN: guard against
// rebinding). It is immutable.
type Guard struct {
	domain policy.Name
	ranges []netip.Prefix
	nat64  []netip.Prefix
	allow  []corefile.RebindAllow
	// cluster are addresses of nodes and Services, with what they are.
	cluster map[netip.Addr]string
}

// Cluster are addresses of the cluster that the guard keeps outside names from,
// beside the ranges of the configuration and the pods of the snapshot.
type Cluster struct {
	// Nodes are every node's addresses. A query from one of this node's own is
	// answered and grants nothing.
	Nodes []netip.Addr
	// Services are the Services' cluster, load-balancer and external addresses.
	Services []netip.Addr
}

// NewGuard returns the guard of a configuration and the cluster's addresses.
func NewGuard(c *corefile.Config, cluster Cluster) *Guard {
	g := &Guard{
		domain: c.ClusterDomain, ranges: c.ClusterRanges, nat64: c.NAT64, allow: c.Rebind,
		cluster: make(map[netip.Addr]string, len(cluster.Nodes)+len(cluster.Services)),
	}
	for _, a := range cluster.Services {
		g.cluster[a.Unmap()] = "service"
	}
	for _, a := range cluster.Nodes {
		g.cluster[a.Unmap()] = "node"
	}
	for _, a := range c.Bind {
		g.cluster[a] = "node" // the endpoint
	}
	return g
}

// Blocked returns why the name must not open the address, "" if it may. The
// pods are those of the snapshot.
//
// An IPv6 address that carries an IPv4 address is judged as both. A name under
// the cluster domain may lead into the cluster, though never to loopback and its
// like. The administrator's `rebind allow` opens what it names, in either form.
func (g *Guard) Blocked(n policy.Name, a netip.Addr, pods *policy.Snapshot) string {
	a = a.Unmap()
	outside := !n.HasSuffix(g.domain)
	reason := g.judge(a, outside, pods)
	if reason != "" && !g.allowed(n, a) {
		return reason
	}
	for _, in := range unwrap(a, g.nat64) {
		reason := g.judge(in, outside, pods)
		if reason != "" && !g.allowed(n, a) && !g.allowed(n, in) {
			return reason + " in " + a.String()
		}
	}
	return ""
}

func (g *Guard) judge(a netip.Addr, outside bool, pods *policy.Snapshot) string {
	for _, m := range metadata {
		if a == m {
			return "metadata"
		}
	}
	for _, n := range never {
		if n.prefix.Contains(a) {
			return n.reason
		}
	}
	if !outside {
		return ""
	}
	if what, ok := g.cluster[a]; ok {
		return what
	}
	if _, ok := pods.Pod(a); ok {
		return "pod"
	}
	for _, p := range g.ranges {
		if p.Contains(a) {
			return "cluster"
		}
	}
	return ""
}

func (g *Guard) allowed(n policy.Name, a netip.Addr) bool {
	for _, r := range g.allow {
		if r.Range.Contains(a) && n.HasSuffix(r.Suffix) {
			return true
		}
	}
	return false
}
