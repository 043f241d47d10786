package link

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sharedLink says that an address has no home, since others share its interface.
type sharedLink string

func (l sharedLink) Error() string { return "others share the interface " + string(l) }

// Homes implements Interface. A default route leads to no pod.
func (k *Kernel) Homes(addrs []netip.Addr) (homes map[netip.Addr][]Found, shared map[netip.Addr]string, err error) {
	homes, shared = map[netip.Addr][]Found{}, map[netip.Addr]string{}
	bridges := map[int]*bridge{}
	var errs []error
	for _, a := range addrs {
		var others sharedLink
		switch f, err := k.home(a, bridges); {
		case errors.As(err, &others):
			shared[a] = string(others)
		case err == nil:
			homes[a] = f
		case !errors.Is(err, errUnknown):
			errs = append(errs, err)
		}
	}
	return homes, shared, errors.Join(errs...)
}

// home finds the homes of one address. It keeps the bridges that it looks at.
func (k *Kernel) home(addr netip.Addr, bridges map[int]*bridge) ([]Found, error) {
	routes, err := k.h.RouteGetWithOptions(addr.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true}) // in the table, with its prefix
	if err != nil || len(routes) != 1 {
		return nil, fmt.Errorf("route to %s: %w", addr, errUnknown)
	}
	r := routes[0]
	if r.Gw != nil || r.Via != nil || r.Type != unix.RTN_UNICAST {
		return nil, fmt.Errorf("%s is not on a link of this node: %w", addr, errUnknown)
	}
	b := bridges[r.LinkIndex]
	if b == nil {
		l, err := k.h.LinkByIndex(r.LinkIndex)
		if err != nil {
			return nil, fmt.Errorf("interface %d of the route to %s: %w", r.LinkIndex, addr, err)
		}
		if l.Type() != "bridge" {
			// A link to a whole network, such as the node's own, is no pod's home: other
			// sources are genuine on it too.
			switch prefix, _ := r.Dst.Mask.Size(); prefix {
			case 0:
				return nil, fmt.Errorf("the route to %s leads to everywhere: %w", addr, errUnknown)
			case addr.BitLen():
				return []Found{{Home{Iface: l.Attrs().Name}, Seen}}, nil
			}
			return nil, sharedLink(l.Attrs().Name)
		}
		if b, err = k.readBridge(l); err != nil {
			return nil, err
		}
		bridges[r.LinkIndex] = b
	}
	return b.home(k, addr)
}

// Route implements Interface.
func (k *Kernel) Route(addr netip.Addr) (string, error) {
	routes, err := k.h.RouteGet(addr.AsSlice())
	if err != nil || len(routes) == 0 {
		return "", fmt.Errorf("route to %s: %w", addr, cmp.Or(err, errUnknown))
	}
	l, err := k.h.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return "", fmt.Errorf("interface %d of the route to %s: %w", routes[0].LinkIndex, addr, err)
	}
	return l.Attrs().Name, nil
}

// bridge is the state of one bridge at one moment.
type bridge struct {
	name       string
	index      int
	ports      []port
	neighbours []netlink.Neigh // of both families
	forwarding []netlink.Neigh
}

func (k *Kernel) readBridge(l netlink.Link) (*bridge, error) {
	b := &bridge{name: l.Attrs().Name, index: l.Attrs().Index}
	var err error
	if b.ports, err = k.portsOf(b.index); err != nil {
		return nil, fmt.Errorf("ports of %s: %w", b.name, err)
	}
	if b.neighbours, err = consistent(func() ([]netlink.Neigh, error) { return k.h.NeighList(b.index, unix.AF_UNSPEC) }); err != nil {
		return nil, fmt.Errorf("neighbours of %s: %w", b.name, err)
	}
	if b.forwarding, err = consistent(func() ([]netlink.Neigh, error) { return k.h.NeighList(0, unix.AF_BRIDGE) }); err != nil {
		return nil, fmt.Errorf("forwarding table of %s: %w", b.name, err)
	}
	return b, nil
}

// home finds the ports that lead to an address. A port whose network namespace can be
// seen, and has addresses, is the home of these alone, whatever the bridge learnt from
// it. For another port the bridge's table counts: the kernel is too old to look, or the
// container has a network stack of its own and its namespace no addresses.
func (b *bridge) home(k *Kernel, addr netip.Addr) ([]Found, error) {
	var exact, other []Found
	blind := false
	for _, p := range b.ports {
		blind = blind || len(p.behind) == 0
		on, there := p.behind[addr]
		switch at := (Found{Home{Iface: b.name, Port: p.name}, Seen}); {
		case there && on == p.peer:
			exact = append(exact, at)
		case there:
			other = append(other, at)
		}
	}
	// A pod may have several interfaces on one bridge: the address is on one of them.
	if len(exact) > 0 {
		return exact, nil
	}
	if len(other) > 0 {
		return other, nil
	}
	p, err := b.heard(addr)
	if errors.Is(err, errUnknown) {
		k.resolve(b.index, addr)
	}
	switch {
	case errors.Is(err, errUnknown) && !blind, err == nil && len(p.behind) > 0:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []Found{{Home{Iface: b.name, Port: p.name}, Heard}}, nil
}

// heard finds the port behind which the bridge learnt the neighbour of an address.
func (b *bridge) heard(addr netip.Addr) (port, error) {
	const heard = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT
	for _, n := range b.neighbours {
		if a, ok := netip.AddrFromSlice(n.IP); !ok || a.Unmap() != addr || n.State&heard == 0 || len(n.HardwareAddr) == 0 {
			continue
		}
		for _, e := range b.forwarding {
			if e.MasterIndex != b.index || !bytes.Equal(e.HardwareAddr, n.HardwareAddr) || e.State&netlink.NUD_PERMANENT != 0 {
				continue
			}
			for _, p := range b.ports {
				if p.index == e.LinkIndex {
					return p, nil
				}
			}
		}
	}
	return port{}, fmt.Errorf("%s has not been heard on %s: %w", addr, b.name, errUnknown)
}

// resolve makes the kernel resolve a neighbour, as sending to it would. That it
// cannot shows when the home stays unknown.
func (k *Kernel) resolve(index int, addr netip.Addr) {
	_ = k.h.NeighSet(&netlink.Neigh{LinkIndex: index, IP: addr.AsSlice(), Flags: netlink.NTF_USE, State: netlink.NUD_NONE})
}
