package layout

import (
	"math/big"
	"net/netip"
	"slices"
	"strconv"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
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
	// Pods are the addresses of Subjects, grouped by pod.
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
	// Bound are interfaces of one pod each, beside Ifaces: no other source may come from them.
	Bound []string
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
	// Tiers are the ordered rules of subjects, Ingress the rules for connections to subjects, and Peers the
	// sets that they ask.
	Tiers, Ingress []Tiers
	Peers          []PeerSet
	// Unsettled are addresses among those of Ingress. Connections that were opened before their rules are not
	// admitted yet, and replies to these pass.
	Unsettled []netip.Addr
	// IngressPorts are the bridge ports of subjects of Ingress.
	IngressPorts []string
	// Entries are the names of the sets of entries that rules of Tiers ask.
	Entries []string
	// Relays are where connections are led whose server name is checked.
	Relays Relays
	// Node are the rules of the node itself, nil for none.
	Node *Node
	// NodeAudited: connections of the node itself are logged when it opens them, denied or not.
	NodeAudited bool
	// NodeDNS leads the queries of the node's own sockets to the agent; nil: they go where they are sent.
	NodeDNS *NodeDNS
	// Serving are addresses on which agents serve DNS: no rule of Tiers denies it there. DNS
	// are the resolvers that Subjects, and subjects of Tiers with DNS, may dial, but for DNSByRules.
	Serving, DNS, DNSByRules []netip.Addr
	// Subjects are the pods with a Namespace tier, and those of Ingress, Lists the rules that they share, and
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

// settled are the addresses of rules for ingress that are not Unsettled.
func (s State) settled(t Tiers) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(t.Subjects), func(a netip.Addr) bool { return slices.Contains(s.Unsettled, a) })
}

// inet renders a state, of which objs are the objects, as elements of the table inet. Each
// address goes to the set of its family.
func (s State) inet(objs objects) nft.Elements {
	out := elements{nft.Elements{}}
	out.addrs("selected", s.Selected)
	for _, own := range s.Pods {
		out.pairs(own)
	}
	out.addrs("dropped", s.Dropped)
	out.addrs(auditedSet, s.Audited)
	out.addrs("intercepted", s.Intercepted)
	out.addrs("known", s.Known)
	out.addrs("endpoint", s.Endpoint)
	out.homes(s.Homes)
	out.addrs("homed", s.Nowhere)
	for _, i := range s.Ifaces {
		out.Add("ifaces", ifname(i))
	}
	for _, i := range slices.Concat(s.Ifaces, s.Bound) {
		out.Add(boundSet, ifname(i))
	}
	for dialled, serving := range s.Resolvers {
		out.lead("intercept", dialled, serving)
		out.lead("giveback", serving, dialled)
	}
	for serving, dialled := range s.Predecessor {
		if dialled.IsValid() {
			out.lead("giveback", serving, dialled)
		}
	}
	out.formers(s.Resolvers, s.Predecessor)
	out.nodeDNS(s.NodeDNS)
	out.addrs("plain", s.Plain)
	out.prefixes("podrange", s.PodRanges)
	out.prefixes(servicesSet, s.Services)
	out.tiers(s, objs)
	for _, r := range s.Relays.Guarded {
		out.Add(relaysSet+timed.Suffix(r.Addr()), r.Addr().String(), strconv.Itoa(int(r.Port())))
	}
	out.backends(s.Backends)
	for _, b := range s.Answering {
		out.Add(answeringSet+timed.Suffix(b.Addr()), b.Addr().String(), strconv.Itoa(int(b.Port())))
	}
	return out.Sorted()
}

// bridge renders a state as elements of the table bridge.
func (s State) bridge() nft.Elements {
	out := elements{nft.Elements{}}
	out.homes(s.PortHomes)
	out.addrs("homed", s.Nowhere)
	for _, h := range s.PortHomes {
		if h.Addr.Is6() {
			out.Add(claimSet, ifname(h.Iface), asNumber(h.Addr))
		}
	}
	for _, a := range s.Gateways {
		if a.Is6() {
			out.Add(gatewaySet, a.String())
			out.Add(gatewayNumbers, asNumber(a))
		}
	}
	for _, p := range s.Ports {
		out.Add("ports", ifname(p))
	}
	for _, p := range s.IngressPorts {
		out.Add(ingressPorts, ifname(p))
	}
	return out.Sorted()
}

// rangeText writes a prefix as nft lists it: a whole address without its length.
func rangeText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// backends divides the slots among the backends of each family: runs of slots, as
// some clients use every other port.
func (m elements) backends(all []netip.AddrPort) {
	for _, v6 := range []bool{false, true} {
		var of []netip.AddrPort
		for _, b := range all {
			if b.Addr().Is6() == v6 {
				of = append(of, b)
			}
		}
		for slot := 0; len(of) > 0 && slot < slots; slot++ {
			b := of[slot*min(len(of), slots)/slots]
			m.AddMap("backends"+timed.Suffix(b.Addr()), strconv.Itoa(slot), b.Addr().String(), strconv.Itoa(int(b.Port())))
		}
	}
}

// elements are those of one table. Each address goes to the set of its family.
type elements struct{ nft.Elements }

// lead leads from one address to another.
func (m elements) lead(name string, from, to netip.Addr) {
	m.AddMap(name+timed.Suffix(from), from.String(), to.String())
}

func (m elements) addrs(set string, addrs []netip.Addr) {
	for _, a := range addrs {
		m.Add(set+timed.Suffix(a), a.String())
	}
}

func (m elements) prefixes(set string, all []netip.Prefix) {
	for _, p := range all {
		m.Add(set+timed.Suffix(p.Addr()), rangeText(p))
	}
}

func (m elements) homes(homes []Home) {
	for _, h := range homes {
		m.Add("home"+timed.Suffix(h.Addr), ifname(h.Iface), h.Addr.String())
		m.Add("homed"+timed.Suffix(h.Addr), h.Addr.String())
	}
}

// pairs says of addresses that they are one pod's.
func (m elements) pairs(own []netip.Addr) {
	for _, a := range own {
		for _, b := range own {
			if a.Is6() == b.Is6() {
				m.Add("own"+timed.Suffix(a), a.String(), b.String())
			}
		}
	}
}

// asNumber writes an IPv6 address as nft lists values that it only knows as numbers.
func asNumber(a netip.Addr) string {
	b := a.As16()
	return "0x" + new(big.Int).SetBytes(b[:]).Text(16)
}

// ifname quotes an interface name as nft lists it.
func ifname(s string) string { return `"` + s + `"` }
