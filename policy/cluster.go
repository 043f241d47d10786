package policy

import (
	"net/netip"
	"slices"
)

// ServiceRef names a Service of the cluster: "kube-dns.kube-system" in a Corefile.
type ServiceRef struct{ Namespace, Name string }

// String returns NAME.NAMESPACE, as a Corefile writes it.
func (r ServiceRef) String() string { return r.Name + "." + r.Namespace }

// Resolver is where a Service answers DNS at one moment. A Service that is not
// there has neither.
type Resolver struct {
	// ClusterIPs are what pods dial, at port 53.
	ClusterIPs []netip.Addr
	// Endpoints are behind it, with the port of the pod: the ready ones; if there are
	// none, the terminating ones that serve; else the ones that are not ready.
	Endpoints []netip.AddrPort
}

// Cluster is a source's knowledge of the cluster beside pods and policies. All lists are
// sorted and have each value once; addresses are unmapped.
type Cluster struct {
	// Nodes are the addresses of every node, or of this node alone where the source watches no
	// other.
	Nodes []netip.Addr
	// Services are the Services' cluster and load-balancer addresses. External IPs are what anyone
	// who writes Services claims.
	Services []netip.Addr
	// ClusterIPs are the cluster addresses among Services, which the cluster assigns.
	ClusterIPs []netip.Addr
	// ServicesAt are the Services by each of their addresses, "None" excepted.
	ServicesAt map[netip.Addr]*Service
	// Dialled are the Services with a cluster IP, sorted by "namespace/name": a name of
	// another leads to the pods themselves. One that did not change keeps its pointer.
	Dialled []*Service
	// PodRanges are the pod ranges of the same nodes, LocalRanges the pod ranges of this
	// node.
	PodRanges, LocalRanges []netip.Prefix
	// Resolvers are the Services that the source has to follow.
	Resolvers map[ServiceRef]Resolver
	// Own is the Node object of the agent's node, nil for none, and APIServers are where the API is
	// served; both only of a source that was asked for them.
	Own        *Host
	APIServers APIServers
}

// Host is a Node object.
type Host struct {
	Labels     map[string]string
	Addrs      []netip.Addr // of its status
	ProviderID string
}

// APIServers are the addresses and TCP ports of the Service kubernetes in the namespace
// default. Both lists are sorted.
type APIServers struct {
	// Service are what is dialled, Endpoints what is behind.
	Service, Endpoints []netip.AddrPort
}

// Service is the translation of a Service's port to its pods, which happens before
// NetworkPolicies are evaluated.
type Service struct {
	Ref ServiceRef
	// Selector selects its pods in its namespace; empty for one whose endpoints
	// somebody else writes.
	Selector map[string]string
	Ports    []ServicePort
}

// ServicePort is one port of a Service, and where it leads to in the pod: to a number,
// or to the port of that name.
type ServicePort struct {
	Protocol   Protocol
	Port       uint16
	Target     uint16
	TargetName string
}

// In returns the port to which it leads in a pod with some ports, and whether the pod has it.
func (s *ServicePort) In(ports []NamedPort) (to uint16, ok bool) {
	if s.TargetName == "" {
		return s.Target, true
	}
	i := slices.IndexFunc(ports, func(p NamedPort) bool { return p.Name == s.TargetName && p.Protocol == s.Protocol })
	if i < 0 {
		return 0, false
	}
	return ports[i].Port, true
}
