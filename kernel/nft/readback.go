package nft

import (
	"context"
	"net/netip"
	"strings"

	"sigs.k8s.io/knftables"
)

// Homes returns the homes that the sets hold: of the IP layer and of bridge ports.
func (t *Tables) Homes() (homes, ports []Home) {
	for _, e := range t.applied {
		if (e.Set != "home4" && e.Set != "home6") || len(e.Key) != 2 {
			continue
		}
		addr, err := netip.ParseAddr(e.Key[1])
		if err != nil {
			continue
		}
		h := Home{Iface: strings.Trim(e.Key[0], `"`), Addr: addr}
		if e.Family == knftables.BridgeFamily {
			ports = append(ports, h)
		} else {
			homes = append(homes, h)
		}
	}
	return homes, ports
}

// GivenBack returns the serving addresses whose replies are given back, with what
// pods dialled, as the sets hold them.
func (t *Tables) GivenBack() map[netip.Addr]netip.Addr { return t.givenBack("giveback") }

// NodeGivenBack returns the serving addresses of the node's own queries, with the resolvers.
func (t *Tables) NodeGivenBack() map[netip.Addr]netip.Addr { return t.givenBack(nodeGiveBackMap) }

func (t *Tables) givenBack(name string) map[netip.Addr]netip.Addr {
	out := map[netip.Addr]netip.Addr{}
	for _, e := range t.applied {
		if strings.HasPrefix(e.Map, name) {
			pair(out, e)
		}
	}
	return out
}

// Serving returns the addresses to which the kernel redirects queries now, by the address
// that pods dial, also those that another agent wrote.
func (t *Tables) Serving(ctx context.Context) (map[netip.Addr]netip.Addr, error) {
	out := map[netip.Addr]netip.Addr{}
	all, err := t.elementsOfFamilies(ctx, "intercept")
	for _, e := range all {
		pair(out, e)
	}
	return out, err
}

// pair reads an element of a map from address to address.
func pair(into map[netip.Addr]netip.Addr, e *knftables.Element) {
	key, err := netip.ParseAddr(e.Key[0])
	if err != nil || len(e.Value) != 1 {
		return
	}
	if value, err := netip.ParseAddr(e.Value[0]); err == nil {
		into[key] = value
	}
}

// Probed returns the selected pods whose self-test query came to interception in
// the last three seconds.
func (t *Tables) Probed(ctx context.Context) ([]netip.Addr, error) {
	return t.addrs(ctx, probedSet)
}

// addrs returns the addresses that a set of each family holds.
func (t *Tables) addrs(ctx context.Context, set string) ([]netip.Addr, error) {
	var out []netip.Addr
	all, err := t.elementsOfFamilies(ctx, set)
	for _, e := range all {
		if a, err := netip.ParseAddr(e.Key[0]); err == nil {
			out = append(out, a)
		}
	}
	return out, err
}

// elementsOfFamilies returns the elements of the inet table's set or map of each family.
func (t *Tables) elementsOfFamilies(ctx context.Context, set string) ([]*knftables.Element, error) {
	s, err := t.plainSkeleton(0)
	if err != nil {
		return nil, err
	}
	var out []*knftables.Element
	for _, f := range families {
		found, err := t.elements(ctx, s, set+f.suffix)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}
