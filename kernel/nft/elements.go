package nft

import (
	"math/big"
	"net/netip"
	"strconv"

	"sigs.k8s.io/knftables"
)

// elements renders a state, of which objects are the tiers, as set elements by key. Each
// address goes to the set of its family.
func (s State) elements(objects tierObjects) elements {
	out := make(elements, setsOfPod*len(s.Selected))
	out.addrs(knftables.InetFamily, "selected", s.Selected)
	for _, own := range s.Pods {
		out.pairs(own)
	}
	out.addrs(knftables.InetFamily, "dropped", s.Dropped)
	out.addrs(knftables.InetFamily, auditedSet, s.Audited)
	out.addrs(knftables.InetFamily, "intercepted", s.Intercepted)
	out.addrs(knftables.InetFamily, "known", s.Known)
	out.addrs(knftables.InetFamily, "endpoint", s.Endpoint)
	out.homes(knftables.InetFamily, s.Homes)
	out.homes(knftables.BridgeFamily, s.PortHomes)
	out.addrs(knftables.InetFamily, "homed", s.Nowhere)
	out.addrs(knftables.BridgeFamily, "homed", s.Nowhere)
	for _, h := range s.PortHomes {
		if h.Addr.Is6() {
			out.claim(ifname(h.Iface), h.Addr)
		}
	}
	for _, a := range s.Gateways {
		if a.Is6() {
			out.add(knftables.BridgeFamily, gatewaySet, "", a.String())
			out.add(knftables.BridgeFamily, gatewayNumbers, "", asNumber(a))
		}
	}
	for _, i := range s.Ifaces {
		out.add(knftables.InetFamily, "ifaces", "", ifname(i))
	}
	for _, p := range s.Ports {
		out.add(knftables.BridgeFamily, "ports", "", ifname(p))
	}
	for dialled, serving := range s.Resolvers {
		out.add(knftables.InetFamily, "", "intercept"+suffix(dialled), dialled.String(), serving.String())
		out.add(knftables.InetFamily, "", "giveback"+suffix(dialled), serving.String(), dialled.String())
	}
	for serving, dialled := range s.Predecessor {
		if dialled.IsValid() {
			out.add(knftables.InetFamily, "", "giveback"+suffix(dialled), serving.String(), dialled.String())
		}
	}
	out.formers(s.Resolvers, s.Predecessor)
	out.nodeDNS(s.NodeDNS)
	out.addrs(knftables.InetFamily, "plain", s.Plain)
	for _, p := range s.PodRanges {
		out.add(knftables.InetFamily, "podrange"+suffix(p.Addr()), "", rangeText(p))
	}
	for _, n := range s.Services {
		out.add(knftables.InetFamily, servicesSet+suffix(n.Addr()), "", rangeText(n))
	}
	out.tiers(s, objects)
	out.backends(s.Backends)
	for _, b := range s.Answering {
		out.add(knftables.InetFamily, answeringSet+suffix(b.Addr()), "", b.Addr().String(), strconv.Itoa(int(b.Port())))
	}
	return out
}

// setsOfPod is about how many sets hold an address of a pod.
const setsOfPod = 10

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
			m.mapped("backends"+suffix(b.Addr()), strconv.Itoa(slot), b.Addr().String(), strconv.Itoa(int(b.Port())))
		}
	}
}

// mapped adds an element of a map whose value has several words.
func (m elements) mapped(name, key string, value ...string) {
	e := &knftables.Element{Family: knftables.InetFamily, Table: TableName, Map: name, Key: []string{key}, Value: value}
	m[elementKey(e)] = e
}

type elements map[string]*knftables.Element

// add puts an element into a set, or into a map: then the last word is the value.
func (m elements) add(f knftables.Family, set, mapName string, words ...string) {
	e := &knftables.Element{Family: f, Table: TableName, Set: set, Map: mapName, Key: words}
	if mapName != "" {
		last := len(words) - 1
		e.Key, e.Value = words[:last], words[last:]
	}
	m[elementKey(e)] = e
}

func (m elements) addrs(f knftables.Family, set string, addrs []netip.Addr) {
	for _, a := range addrs {
		m.add(f, set+suffix(a), "", a.String())
	}
}

func (m elements) homes(f knftables.Family, homes []Home) {
	for _, h := range homes {
		m.add(f, "home"+suffix(h.Addr), "", ifname(h.Iface), h.Addr.String())
		m.add(f, "homed"+suffix(h.Addr), "", h.Addr.String())
	}
}

// pairs says of addresses that they are one pod's.
func (m elements) pairs(own []netip.Addr) {
	for _, a := range own {
		for _, b := range own {
			if a.Is6() == b.Is6() {
				m.add(knftables.InetFamily, "own"+suffix(a), "", a.String(), b.String())
			}
		}
	}
}

// claim lets a port, its name quoted, advertise an address.
func (m elements) claim(port string, a netip.Addr) {
	m.add(knftables.BridgeFamily, claimSet, "", port, asNumber(a))
}

// asNumber writes an IPv6 address as nft lists values that it only knows as numbers.
func asNumber(a netip.Addr) string {
	b := a.As16()
	return "0x" + new(big.Int).SetBytes(b[:]).Text(16)
}

// ifname quotes an interface name as nft lists it.
func ifname(s string) string { return `"` + s + `"` }

func suffix(a netip.Addr) string {
	if a.Is6() {
		return "6"
	}
	return "4"
}

// elementKey is the identity of an element with its value: a map element whose
// value changes is another element.
func elementKey(e *knftables.Element) string {
	b := make([]byte, 0, 96)
	for _, word := range [...]string{string(e.Family), e.Set, e.Map} {
		b = append(append(b, word...), '|')
	}
	for i, words := range [...][]string{e.Key, e.Value} {
		for j, word := range words {
			if j > 0 {
				b = append(b, '.')
			}
			b = append(b, word...)
		}
		if i == 0 {
			b = append(b, '|')
		}
	}
	return string(b)
}
