package underlay

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Kernel is the Interface on the network namespace it was opened in.
type Kernel struct {
	h       *netlink.Handle
	sockets map[int]*nl.SocketHandle
	ipsec   bool // the kernel has IPsec
}

var _ Interface = (*Kernel)(nil)

// Open opens netlink sockets in the calling thread's network namespace.
func Open() (*Kernel, error) {
	k := &Kernel{sockets: map[int]*nl.SocketHandle{}, ipsec: true}
	families := []int{unix.NETLINK_ROUTE, unix.NETLINK_GENERIC}
	h, err := netlink.NewHandle(append(families, unix.NETLINK_XFRM)...)
	if errors.Is(err, syscall.EPROTONOSUPPORT) {
		k.ipsec = false
		h, err = netlink.NewHandle(families...)
	}
	if err != nil {
		return nil, fmt.Errorf("open netlink sockets: %w", err)
	}
	k.h = h
	for _, family := range append(families, unix.NETLINK_INET_DIAG) {
		s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), family)
		if err != nil {
			k.Close()
			return nil, fmt.Errorf("open netlink socket of protocol %d: %w", family, err)
		}
		k.sockets[family] = &nl.SocketHandle{Socket: s}
	}
	return k, nil
}

// Close closes the sockets.
func (k *Kernel) Close() {
	k.h.Close()
	for _, s := range k.sockets {
		s.Close()
	}
}

// dump asks for a listing.
func (k *Kernel) dump(family int, typ, reply uint16, each func(msg []byte), header nl.NetlinkRequestData, attrs ...nl.NetlinkRequestData) error {
	return settled(func() error {
		req := nl.NewNetlinkRequest(int(typ), unix.NLM_F_DUMP)
		req.Sockets = k.sockets
		req.AddData(header)
		for _, a := range attrs {
			req.AddData(a)
		}
		return req.ExecuteIter(family, reply, func(msg []byte) bool {
			each(msg)
			return true
		})
	})
}

// dumpTries is how often a table is listed that changes while the kernel lists it. The last
// listing counts: it may lack entries that were moved.
const dumpTries = 10

// settled lists until the table did not change meanwhile. Later listings add to earlier ones.
func settled(list func() error) (err error) {
	for range dumpTries {
		if err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return nil
}

// NextHops implements Interface.
func (k *Kernel) NextHops() ([]NextHop, error) {
	names, err := k.deviceNames()
	if err != nil {
		return nil, err
	}
	return k.nextHops(names)
}

// nextHops lists the next hops of routes and of nexthop objects, which routes may name instead.
func (k *Kernel) nextHops(names map[int]string) ([]NextHop, error) {
	seen := map[NextHop]bool{}
	add := func(gateway net.IP, device int) {
		if a, ok := address(gateway); ok {
			seen[NextHop{a, names[device]}] = true
		}
	}
	via := func(d netlink.Destination) net.IP {
		if v, ok := d.(*netlink.Via); ok && v != nil {
			return v.Addr
		}
		return nil
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
		err := settled(func() error {
			return k.h.RouteListFilteredIter(family, all, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
				add(r.Gw, r.LinkIndex)
				add(via(r.Via), r.LinkIndex)
				for _, hop := range r.MultiPath {
					add(hop.Gw, hop.LinkIndex)
					add(via(hop.Via), hop.LinkIndex)
				}
				return true
			})
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
	}
	objects, err := k.nexthopObjects()
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if !o.fdb {
			add(o.gateway, o.device)
		}
	}
	return sorted(seen, func(a, b NextHop) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Device, b.Device))
	}), nil
}

// deviceNames returns the names of all interfaces by number.
func (k *Kernel) deviceNames() (map[int]string, error) {
	links, err := k.links()
	if err != nil {
		return nil, err
	}
	names := make(map[int]string, len(links))
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	return names, nil
}

func (k *Kernel) links() (links []netlink.Link, err error) {
	err = settled(func() (err error) {
		links, err = k.h.LinkList()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return links, nil
}

// address returns an address that can be another host's or a group.
func address(ip net.IP) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(ip)
	a = a.Unmap()
	return a, ok && !a.IsUnspecified() && !a.IsLoopback()
}

func sorted[T comparable](set map[T]bool, compare func(a, b T) int) []T {
	out := make([]T, 0, len(set))
	for v := range set {
		out = append(out, v)
	}
	slices.SortFunc(out, compare)
	return out
}
