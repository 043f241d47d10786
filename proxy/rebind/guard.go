package rebind

import (
	"net/netip"
	"slices"

	"github.com/namegate/namegate/audit"
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

// linkLocal are the ranges of the pod's own link.
var linkLocal = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10")}

// Guard decides which addresses a name must not open. It is immutable.
type Guard struct {
	domain fqdn.Name
	ranges []netip.Prefix
	nat64  []netip.Prefix
	allow  []corefile.RebindAllow
	// cluster are addresses of nodes, Services and resolvers, with the reason.
	cluster map[netip.Addr]string
	own     func(netip.Addr) bool // of the agent
	node    bool                  // see ForNode
	unknown bool                  // see ForUnknown
}

// Addresses are the addresses in and around the cluster that an outside name must
// not open, beside the configuration's own.
type Addresses struct {
	// Nodes are the addresses of all known nodes.
	Nodes []netip.Addr
	// Services are the cluster and load-balancer addresses of Services.
	Services []netip.Addr
	// Resolvers are the addresses of the cluster's resolvers: their endpoints and
	// the addresses of their Services.
	Resolvers []netip.Addr
	// Ranges are the pod ranges of all known nodes.
	Ranges []netip.Prefix
}

// New returns the guard of a configuration and the cluster's addresses. The
// resolvers that the configuration names are closed too.
func New(c *corefile.Config, known Addresses) *Guard {
	g := &Guard{
		domain: c.ClusterDomain, ranges: slices.Concat(c.ClusterRanges, known.Ranges), nat64: c.NAT64, allow: c.Rebind,
		cluster: make(map[netip.Addr]string, len(known.Nodes)+len(known.Services)+len(known.Resolvers)),
		own:     c.Own,
	}
	for _, z := range c.Zones {
		for _, to := range z.To {
			g.cluster[to.Addr().Unmap()] = "resolver"
		}
	}
	// The last reason counts where an address has several.
	for _, group := range []struct {
		addrs  []netip.Addr
		reason string
	}{{c.Intercept, "resolver"}, {known.Resolvers, "resolver"}, {known.Services, "service"}, {known.Nodes, "node"}} {
		for _, a := range group.addrs {
			g.cluster[a.Unmap()] = group.reason
		}
	}
	return g
}

// ForNode returns the guard for names that the node itself asks for. Such names lead to nodes, to the
// resolvers of the host and to Services from outside, as to a registry behind a load balancer, in
// every organisation. Pods and the cluster's ranges stay closed to names from outside, as far as the
// rules of the node close them, and so do link-local and metadata addresses.
func (g *Guard) ForNode() *Guard {
	node := *g
	node.node = true
	return &node
}

// ForUnknown returns the guard where the cluster's addresses are not known: a name under the
// cluster domain may open any.
func (g *Guard) ForUnknown() *Guard {
	unknown := *g
	unknown.unknown = true
	return &unknown
}

// Blocked returns why the name must not open the address, "" if it may. pods has
// the addresses of pods; nil has none.
//
// An IPv6 address that carries an IPv4 address is checked as both. A name under the
// cluster domain may open addresses of the cluster alone, and no loopback and no metadata
// address. A `rebind allow` of the configuration opens its range in either form,
// except for addresses that no host can have.
func (g *Guard) Blocked(n fqdn.Name, a netip.Addr, pods *policy.Snapshot) string {
	a = a.Unmap()
	outside := !n.HasSuffix(g.domain)
	if reason := corefile.NoHost(a); reason != "" {
		return reason
	}
	reason := g.reason(a, outside, pods)
	if reason == "" && !outside && !g.unknown && !g.ofCluster(a, pods) {
		reason = audit.BlockedOutside
	}
	if reason != "" && !g.allowed(n, a) {
		return reason
	}
	for _, in := range embedded(a, g.nat64) {
		if reason := corefile.NoHost(in); reason != "" {
			return reason + " in " + a.String()
		}
		reason := g.reason(in, outside, pods)
		if reason != "" && !g.allowed(n, a) && !g.allowed(n, in) {
			return reason + " in " + a.String()
		}
	}
	return ""
}

// Inside tells whether an address, or one that it carries, is of the cluster or of the pod's own link. A name that may
// open it opens it for no rule that requires the server name: the agent's connections to it would not be as the pod's.
func (g *Guard) Inside(a netip.Addr, pods *policy.Snapshot) bool {
	a = a.Unmap()
	return slices.ContainsFunc(append(embedded(a, g.nat64), a), func(a netip.Addr) bool {
		return slices.Contains(metadata, a) || contains(linkLocal, a) || g.ofCluster(a, pods)
	})
}

// Verdicts are the guard's decisions about the addresses of one answer.
type Verdicts struct {
	Name   fqdn.Name
	Addrs  []Verdict
	Places bool // Inside of each counts
}

// Verdict is the guard's decision about one address.
type Verdict struct {
	Addr   netip.Addr
	Reason string // as Blocked returns it
	Inside bool   // as Inside returns it; false for an address with a Reason
}

// Judge returns the decision about an address for a name.
func (g *Guard) Judge(n fqdn.Name, a netip.Addr, place bool, pods *policy.Snapshot) Verdict {
	v := Verdict{Addr: a, Reason: g.Blocked(n, a, pods)}
	v.Inside = place && v.Reason == "" && g.Inside(a, pods)
	return v
}

// Confirms tells whether each verdict is the same by this guard and these pods.
func (g *Guard) Confirms(v *Verdicts, pods *policy.Snapshot) bool {
	return !slices.ContainsFunc(v.Addrs, func(of Verdict) bool { return g.Judge(v.Name, of.Addr, v.Places, pods) != of })
}

// reason returns why an address is closed to a name from outside or inside the cluster
// domain, "" if it is open.
func (g *Guard) reason(a netip.Addr, outside bool, pods *policy.Snapshot) string {
	switch {
	case slices.Contains(metadata, a):
		return "metadata"
	case contains(linkLocal, a):
		return "link-local"
	case !outside:
		return ""
	case g.own(a):
		return "node"
	}
	if reason, ok := g.cluster[a]; ok && !g.node {
		return reason
	}
	return g.placed(a, pods)
}

// ofCluster tells whether an address is one of a node, a Service or a pod, or in a range of the
// cluster. A resolver may be anywhere.
func (g *Guard) ofCluster(a netip.Addr, pods *policy.Snapshot) bool {
	listed := g.cluster[a]
	return g.own(a) || listed != "" && listed != "resolver" || g.placed(a, pods) != ""
}

// placed returns whether an address is a pod's or in a range of the cluster, "" for neither.
func (g *Guard) placed(a netip.Addr, pods *policy.Snapshot) string {
	if _, ok := pods.Pod(a); ok {
		return "pod"
	}
	if contains(g.ranges, a) {
		return "cluster"
	}
	return ""
}

func (g *Guard) allowed(n fqdn.Name, a netip.Addr) bool {
	return slices.ContainsFunc(g.allow, func(r corefile.RebindAllow) bool { return r.Range.Contains(a) && n.HasSuffix(r.Suffix) })
}

// contains tells whether an address is in one of the ranges.
func contains(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}
