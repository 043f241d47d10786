package policy

import "net/netip"

// ServiceRef names a Service of the cluster: "kube-dns.kube-system" in a Corefile.
type ServiceRef struct{ Namespace, Name string }

// String returns NAME.NAMESPACE, as a Corefile writes it.
func (r ServiceRef) String() string { return r.Name + "." + r.Namespace }

// Resolver is where a Service answers DNS at one moment. A Service that is not
// there has neither.
type Resolver struct {
	// ClusterIPs are what pods dial, at port 53.
	ClusterIPs []netip.Addr
	// Endpoints are behind it, with the port of the pod: those that are ready; where
	// there is none those that serve although they end; and where there is none of
	// these either those that are not ready.
	Endpoints []netip.AddrPort
}

// Cluster is what a source knows of the cluster beside pods and policies. All
// lists are sorted and have each value once; addresses are unmapped.
type Cluster struct {
	// Nodes are the addresses of every node.
	Nodes []netip.Addr
	// Services are the Services' cluster, load-balancer and external addresses.
	Services []netip.Addr
	// PodRanges are the pod ranges of every node, LocalRanges those of this one.
	PodRanges, LocalRanges []netip.Prefix
	// Resolvers are the Services that the source was told to follow.
	Resolvers map[ServiceRef]Resolver
}
