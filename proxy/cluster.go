package proxy

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/rebind"
)

// Cluster is the proxy's knowledge of the cluster beyond its configuration and the pods
// of the snapshot. The guard keeps outside names from the addresses and ranges. A Cluster
// is not changed after it was handed over.
type Cluster struct {
	// Nodes are this node's addresses. A query from one of them is answered and
	// grants nothing.
	Nodes []netip.Addr
	// Peers are the other nodes' addresses, as far as they are known.
	Peers []netip.Addr
	// Services are the Services' cluster and load-balancer addresses.
	Services []netip.Addr
	// Ranges are the pod ranges of all known nodes.
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

// Guard returns the guard against rebinding of a configuration and this cluster.
func (c Cluster) Guard(config *corefile.Config) *rebind.Guard {
	known := rebind.Addresses{Nodes: slices.Concat(c.Nodes, c.Peers), Services: c.Services, Ranges: c.Ranges}
	for _, r := range c.Resolvers {
		known.Resolvers = append(known.Resolvers, r.ClusterIPs...)
		for _, e := range r.Endpoints {
			known.Resolvers = append(known.Resolvers, e.Addr())
		}
	}
	return rebind.New(config, known)
}

// dnsPort is where a Service's own addresses are asked.
const dnsPort = 53

// upstreams returns the upstreams of a zone, each once: its addresses and the endpoints of its Services
// in the order of the file, and as the last resort the Services' own addresses.
func (c Cluster) upstreams(config *corefile.Config, z *corefile.Zone) (first, last []netip.AddrPort) {
	add := func(list []netip.AddrPort, all ...netip.AddrPort) []netip.AddrPort {
		for _, to := range all {
			to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
			if !config.Own(to.Addr()) && !slices.Contains(first, to) && !slices.Contains(list, to) {
				list = append(list, to)
			}
		}
		return list
	}
	done := 0
	for i, ref := range z.Services {
		first = add(first, z.To[done:z.Before[i]]...)
		first = add(first, c.Resolvers[ref].Endpoints...)
		done = z.Before[i]
	}
	first = add(first, z.To[done:]...)
	for _, ref := range z.Services {
		for _, a := range c.Resolvers[ref].ClusterIPs {
			last = add(last, netip.AddrPortFrom(a, dnsPort))
		}
	}
	return first, last
}
