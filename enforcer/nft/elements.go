package nft

import (
	"net/netip"
	"strings"

	"sigs.k8s.io/knftables"
)

// elements renders a state as set elements by key. Each address goes to the set
// of its family.
func (s State) elements() map[string]*knftables.Element {
	out := elements{}
	out.addrs(knftables.InetFamily, "selected", s.Selected)
	out.addrs(knftables.InetFamily, "dropped", s.Dropped)
	out.addrs(knftables.InetFamily, "intercepted", s.Intercepted)
	out.addrs(knftables.InetFamily, "known", s.Known)
	out.addrs(knftables.InetFamily, "endpoint", s.Endpoint)
	out.homes(knftables.InetFamily, s.Homes)
	out.homes(knftables.BridgeFamily, s.PortHomes)
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
	for endpoint, resolver := range s.Fallback {
		out.add(knftables.InetFamily, "", "fallback"+suffix(endpoint), endpoint.String(), resolver.String())
	}
	return out
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
	return strings.Join([]string{string(e.Family), e.Set, e.Map, strings.Join(e.Key, "."), strings.Join(e.Value, ".")}, "|")
}
