package proxy

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
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

// linkLocal are the addresses of the pod's own link.
var linkLocal = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10")}

// Guard says which addresses a name must not open (DESIGN: guard against
// rebinding). It is immutable.
type Guard struct {
	domain fqdn.Name
	ranges []netip.Prefix
	nat64  []netip.Prefix
	allow  []corefile.RebindAllow
	// cluster are addresses of nodes, Services and resolvers, with what they are.
	cluster map[netip.Addr]string
	own     func(netip.Addr) bool // of the agent
}

// Cluster is what the proxy knows of the cluster beyond its configuration and the
// pods of the snapshot. The guard keeps outside names from the addresses and ranges.
// Whoever hands one over changes nothing in it any more.
type Cluster struct {
	// Nodes are this node's addresses. A query from one of them is answered and
	// grants nothing.
	Nodes []netip.Addr
	// Peers are the other nodes' addresses, as far as they are known.
	Peers []netip.Addr
	// Services are the Services' cluster, load-balancer and external addresses.
	Services []netip.Addr
	// Ranges are the pod ranges of all nodes.
	Ranges []netip.Prefix
	// Resolvers are what answers behind the Services that the configuration
	// forwards to, and the guard keeps outside names from them.
	Resolvers map[policy.ServiceRef]policy.Resolver
	// Hold are the ranges of this node's pods: a query from an address in them that
	// no pod has waits until its pod is known. Empty: none waits.
	Hold []netip.Prefix
}

// sameGuard tells whether the guard and the identification need the same of both,
// resolvers aside.
func (c Cluster) sameGuard(d Cluster) bool {
	return slices.Equal(c.Nodes, d.Nodes) && slices.Equal(c.Peers, d.Peers) && slices.Equal(c.Services, d.Services) &&
		slices.Equal(c.Ranges, d.Ranges) && slices.Equal(c.Hold, d.Hold)
}

// sameResolvers tells whether the upstreams are the same by both.
func (c Cluster) sameResolvers(d Cluster) bool {
	return maps.EqualFunc(c.Resolvers, d.Resolvers, func(a, b policy.Resolver) bool {
		return slices.Equal(a.ClusterIPs, b.ClusterIPs) && slices.Equal(a.Endpoints, b.Endpoints)
	})
}

// NewGuard returns the guard of a configuration and the cluster's addresses.
func NewGuard(c *corefile.Config, cluster Cluster) *Guard {
	g := &Guard{
		domain: c.ClusterDomain, ranges: slices.Concat(c.ClusterRanges, cluster.Ranges), nat64: c.NAT64, allow: c.Rebind,
		cluster: make(map[netip.Addr]string, len(cluster.Nodes)+len(cluster.Peers)+len(cluster.Services)),
		own:     c.Own,
	}
	for _, a := range knownResolvers(c, cluster) {
		g.cluster[a.Unmap()] = "resolver"
	}
	for _, a := range cluster.Services {
		g.cluster[a.Unmap()] = "service"
	}
	for _, a := range cluster.Peers {
		g.cluster[a.Unmap()] = "node"
	}
	for _, a := range cluster.Nodes {
		g.cluster[a.Unmap()] = "node"
	}
	return g
}

// knownResolvers are the addresses of every zone's upstreams, those whose queries are
// intercepted, and those of the Services that are followed, from where they answer and
// where they are dialled.
func knownResolvers(c *corefile.Config, cluster Cluster) []netip.Addr {
	out := slices.Clone(c.Intercept)
	for _, z := range c.Zones {
		for _, to := range z.To {
			out = append(out, to.Addr())
		}
	}
	for _, r := range cluster.Resolvers {
		out = append(out, r.ClusterIPs...)
		for _, e := range r.Endpoints {
			out = append(out, e.Addr())
		}
	}
	return out
}

// Blocked returns why the name must not open the address, "" if it may. The
// pods are those of the snapshot.
//
// An IPv6 address that carries an IPv4 address is judged as both. A name under
// the cluster domain may lead into the cluster, though never to loopback and its
// like. The administrator's `rebind allow` opens what it names, in either form, but
// nothing that is no host's.
func (g *Guard) Blocked(n fqdn.Name, a netip.Addr, pods *policy.Snapshot) string {
	a = a.Unmap()
	outside := !n.HasSuffix(g.domain)
	if reason := corefile.NoHost(a); reason != "" {
		return reason
	}
	if reason := g.judge(a, outside, pods); reason != "" && !g.allowed(n, a) {
		return reason
	}
	for _, in := range unwrap(a, g.nat64) {
		if reason := corefile.NoHost(in); reason != "" {
			return reason + " in " + a.String()
		}
		reason := g.judge(in, outside, pods)
		if reason != "" && !g.allowed(n, a) && !g.allowed(n, in) {
			return reason + " in " + a.String()
		}
	}
	return ""
}

// judgement is what the guard said of the addresses of an answer to a name.
type judgement struct {
	name  fqdn.Name
	words []judged
}

// judged is one address with the guard's word on it, "" where it may be opened.
type judged struct {
	addr netip.Addr
	word string
}

// stands tells whether the guard says the same by these pods.
func (j *judgement) stands(g *Guard, pods *policy.Snapshot) bool {
	for _, of := range j.words {
		if g.Blocked(j.name, of.addr, pods) != of.word {
			return false
		}
	}
	return true
}

func (g *Guard) judge(a netip.Addr, outside bool, pods *policy.Snapshot) string {
	for _, m := range metadata {
		if a == m {
			return "metadata"
		}
	}
	for _, p := range linkLocal {
		if p.Contains(a) {
			return "link-local"
		}
	}
	if !outside {
		return ""
	}
	if g.own(a) {
		return "node"
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

func (g *Guard) allowed(n fqdn.Name, a netip.Addr) bool {
	for _, r := range g.allow {
		if r.Range.Contains(a) && n.HasSuffix(r.Suffix) {
			return true
		}
	}
	return false
}
