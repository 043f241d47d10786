package nft

import (
	"maps"
	"net/netip"
	"slices"
)

// Home is one place where an address is genuine.
type Home struct {
	Iface string
	Addr  netip.Addr
}

// State is everything that the sets hold. Order means nothing.
type State struct {
	// Selected pods' addresses are default-deny.
	Selected []netip.Addr
	// Pods are the addresses of Selected, grouped by pod.
	Pods [][]netip.Addr
	// Dropped are the addresses of Selected whose denied packets get no answer.
	Dropped []netip.Addr
	// Audited are pods whose connections are logged when they open them, denied or not.
	Audited []netip.Addr
	// Intercepted pods' queries to the resolvers go to the serving address.
	Intercepted []netip.Addr
	// Known pods' queries to the endpoint go to the serving address.
	Known []netip.Addr
	// Homes are the interfaces of the IP layer, a bridge for bridged pods.
	Homes []Home
	// Ifaces belong to one pod each: nothing else may come from them.
	Ifaces []string
	// Nowhere are the addresses of selected pods that are at home nowhere yet.
	Nowhere []netip.Addr
	// PortHomes are the bridge ports of bridged pods, Ports the same without addresses.
	PortHomes []Home
	Ports     []string
	// Gateways are the node's link-local addresses: bridged pods lead their traffic
	// to it by them, and none may claim one.
	Gateways []netip.Addr
	// Resolvers maps each address that pods dial for DNS to the address that
	// this generation serves it on.
	Resolvers map[netip.Addr]netip.Addr
	// Predecessor maps serving addresses of an agent that ends to the addresses that pods
	// dialled: its replies are given back, no query is led to it. The zero address is none.
	Predecessor map[netip.Addr]netip.Addr
	// Endpoint are the virtual addresses that never change.
	Endpoint []netip.Addr
	// Backends get the endpoint's queries while no agent is alive, each a share of its
	// family's. May be empty.
	Backends []netip.AddrPort
	// Answering are the addresses that answer DNS behind the resolvers: those of
	// Backends, also without redirected queries.
	Answering []netip.AddrPort
	// PodRanges are the ranges of this node's pods, without overlaps: queries to the
	// resolvers from an address inside that is not Plain go to the serving address.
	PodRanges []netip.Prefix
	// Services are what a connection by name may dial and be led on from, without overlaps. By name, others reach
	// what they dialled, or the node.
	Services []netip.Prefix
	// Plain are pods that are known and not intercepted.
	Plain []netip.Addr
	// Tiers are the ordered rules of subjects, Peers the sets that they ask.
	Tiers []Tiers
	Peers []PeerSet
	// Entries are the names of the sets of entries that rules of Tiers ask.
	Entries []string
	// Node are the rules of the node itself, nil for none.
	Node *Node
	// NodeAudited: connections of the node itself are logged when it opens them, denied or not.
	NodeAudited bool
	// NodeDNS leads the queries of the node's own sockets to the agent; nil: they go where they are sent.
	NodeDNS *NodeDNS
	// Serving are addresses on which agents serve DNS: no rule of Tiers denies it there. DNS
	// are the resolvers that Subjects, and subjects of Tiers with DNS, may dial.
	Serving, DNS []netip.Addr
	// Subjects are the pods with a Namespace tier, Lists the rules that they share, and
	// GrantSets all sets of grants that are to be there.
	Subjects  []Subject
	Lists     []RuleList
	GrantSets []GrantSet
	// Staged are addresses of Subjects that are about to be selected: what their rules allow is
	// admitted, nothing is denied.
	Staged []netip.Addr
	// Recheck are addresses whose connections are still to be judged again.
	Recheck []netip.Addr
}

// bare returns the state without the rules of its tiers and of the node, which their IDs stand for, to compare
// it with another. The caller's maps may change.
func (s State) bare() State {
	s.Tiers = slices.Clone(s.Tiers)
	for i := range s.Tiers {
		s.Tiers[i].Admin, s.Tiers[i].NamespaceDeny, s.Tiers[i].Baseline = nil, nil, nil
	}
	if s.Node != nil {
		s.Node = &Node{ID: s.Node.ID}
	}
	s.NodeDNS = s.NodeDNS.bare()
	s.Resolvers, s.Predecessor = maps.Clone(s.Resolvers), maps.Clone(s.Predecessor)
	return s
}
