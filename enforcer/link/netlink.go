package link

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/namegate/namegate/enforcer/nfattr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// dummyName is the interface that carries the endpoint's addresses. Where the
// kernel has no dummy driver, the loopback interface does.
const dummyName = "namegate0"

// Kernel is the Interface on the network namespace it was opened in.
type Kernel struct {
	h *netlink.Handle

	naming sync.Mutex
	names  *nl.SocketHandle

	mu      sync.Mutex
	carrier netlink.Link // of the endpoint's addresses; nil until the first
}

var _ Interface = (*Kernel)(nil)

// Open opens a netlink socket in the calling thread's network namespace.
func Open() (*Kernel, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open route netlink socket: %w", err)
	}
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("open route netlink socket: %w", err)
	}
	return &Kernel{h: h, names: &nl.SocketHandle{Socket: s}}, nil
}

// Close closes the sockets.
func (k *Kernel) Close() {
	k.h.Close()
	k.names.Close()
}

// Home implements Interface.
func (k *Kernel) Home(addr netip.Addr) (Home, error) {
	// The route as it stands in the table, with its prefix.
	routes, err := k.h.RouteGetWithOptions(addr.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil || len(routes) != 1 {
		return Home{}, fmt.Errorf("route to %s: %w", addr, errUnknown)
	}
	r := routes[0]
	if r.Gw != nil || r.Via != nil || r.Type != unix.RTN_UNICAST {
		return Home{}, fmt.Errorf("%s is not on a link of this node: %w", addr, errUnknown)
	}
	l, err := k.h.LinkByIndex(r.LinkIndex)
	if err != nil {
		return Home{}, fmt.Errorf("interface %d of the route to %s: %w", r.LinkIndex, addr, err)
	}
	if l.Type() != "bridge" {
		// A link that a whole network is behind, such as the node's own, is
		// nobody's home: other sources are genuine on it too.
		if r.Dst == nil || prefixLen(r.Dst) != addr.BitLen() {
			return Home{}, fmt.Errorf("%s shares %s with others: %w", addr, l.Attrs().Name, errUnknown)
		}
		return Home{Iface: l.Attrs().Name}, nil
	}
	port, err := k.port(l, addr)
	if err != nil {
		return Home{}, err
	}
	return Home{Iface: l.Attrs().Name, Port: port}, nil
}

func prefixLen(n *net.IPNet) int {
	ones, _ := n.Mask.Size()
	return ones
}

// port finds the bridge port behind which the neighbour of that address is.
func (k *Kernel) port(bridge netlink.Link, addr netip.Addr) (string, error) {
	index := bridge.Attrs().Index
	mac, err := k.neighbour(index, addr)
	if err != nil {
		return "", err
	}
	fdb, err := whole(func() ([]netlink.Neigh, error) { return k.h.NeighList(0, unix.AF_BRIDGE) })
	if err != nil {
		return "", fmt.Errorf("forwarding table of %s: %w", bridge.Attrs().Name, err)
	}
	for _, e := range fdb {
		if e.MasterIndex != index || !bytes.Equal(e.HardwareAddr, mac) || e.State&netlink.NUD_PERMANENT != 0 {
			continue
		}
		l, err := k.h.LinkByIndex(e.LinkIndex)
		if err != nil {
			return "", fmt.Errorf("port %d of %s: %w", e.LinkIndex, bridge.Attrs().Name, err)
		}
		return l.Attrs().Name, nil
	}
	k.ask(index, addr)
	return "", fmt.Errorf("no port of %s has heard %s (%s): %w", bridge.Attrs().Name, addr, mac, errUnknown)
}

func (k *Kernel) neighbour(index int, addr netip.Addr) (net.HardwareAddr, error) {
	family := unix.AF_INET
	if addr.Is6() {
		family = unix.AF_INET6
	}
	const heard = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT
	list, err := whole(func() ([]netlink.Neigh, error) { return k.h.NeighList(index, family) })
	if err != nil {
		return nil, fmt.Errorf("neighbours of interface %d: %w", index, err)
	}
	for _, n := range list {
		if a, ok := netip.AddrFromSlice(n.IP); ok && a.Unmap() == addr && n.State&heard != 0 && len(n.HardwareAddr) > 0 {
			return n.HardwareAddr, nil
		}
	}
	k.ask(index, addr)
	return nil, fmt.Errorf("%s has not been heard on its bridge: %w", addr, errUnknown)
}

// ask makes the kernel resolve a neighbour, as sending to it would. That it
// cannot shows when the home stays unknown.
func (k *Kernel) ask(index int, addr netip.Addr) {
	_ = k.h.NeighSet(&netlink.Neigh{LinkIndex: index, IP: addr.AsSlice(), Flags: netlink.NTF_USE, State: netlink.NUD_NONE})
}

// bridgeSettings are the kernel parameters that hand bridged packets to netfilter.
var bridgeSettings = []string{"/proc/sys/net/bridge/bridge-nf-call-iptables", "/proc/sys/net/bridge/bridge-nf-call-ip6tables"}

// BridgesFiltered implements Interface.
func (k *Kernel) BridgesFiltered() (bool, error) {
	for _, path := range bridgeSettings {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return false, nil // br_netfilter is not loaded
		}
		if err != nil {
			return false, fmt.Errorf("read bridge setting: %w", err)
		}
		if strings.TrimSpace(string(text)) == "0" {
			return false, nil
		}
	}
	return true, nil
}

// skipStats leaves the counters out of a listing (RTEXT_FILTER_SKIP_STATS of
// linux/rtnetlink.h): they are most of it.
const skipStats = 1 << 3

// Names implements Interface.
func (k *Kernel) Names() (map[string]bool, error) {
	out, err := whole(k.listNames)
	if err != nil {
		return nil, fmt.Errorf("list the node's interfaces: %w", err)
	}
	return out, nil
}

func (k *Kernel) listNames() (map[string]bool, error) {
	k.naming.Lock()
	defer k.naming.Unlock()
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: k.names}
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)))
	out := map[string]bool{}
	err := req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWLINK, func(msg []byte) bool {
		nfattr.Each(msg[unix.SizeofIfInfomsg:], func(typ int, value []byte) {
			if typ == unix.IFLA_IFNAME {
				out[nfattr.String(value)] = true
			}
		})
		return true
	})
	return out, err
}

// wholeTries is how often a list is asked for that changes while the kernel lists it.
const wholeTries = 50

// whole returns a list that did not change while the kernel listed it: one that did
// may lack what was there all the time.
func whole[T any](list func() (T, error)) (out T, err error) {
	for range wholeTries {
		if out, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return out, err
}

// AddAddr implements Interface.
func (k *Kernel) AddAddr(addr netip.Addr) error {
	l, err := k.ensureCarrier()
	if err != nil {
		return err
	}
	err = k.h.AddrReplace(l, endpointAddr(addr))
	if addr.Is6() && (errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EOPNOTSUPP)) {
		err = errDisabled
	}
	if err != nil {
		return fmt.Errorf("add address %s to %s: %w", addr, l.Attrs().Name, err)
	}
	return nil
}

// DelAddr implements Interface.
func (k *Kernel) DelAddr(addr netip.Addr) error {
	for _, name := range []string{dummyName, "lo"} {
		l, err := k.h.LinkByName(name)
		if err != nil {
			continue
		}
		err = k.h.AddrDel(l, endpointAddr(addr))
		if err != nil && !errors.Is(err, syscall.EADDRNOTAVAIL) {
			return fmt.Errorf("remove address %s from %s: %w", addr, name, err)
		}
	}
	return nil
}

// RemoveCarrier implements Interface.
func (k *Kernel) RemoveCarrier() error {
	l, err := k.h.LinkByName(dummyName)
	if err != nil {
		return nil
	}
	if err := k.h.LinkDel(l); err != nil {
		return fmt.Errorf("remove interface %s: %w", dummyName, err)
	}
	return nil
}

// ensureCarrier finds or makes the interface for the endpoint's addresses.
func (k *Kernel) ensureCarrier() (netlink.Link, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.carrier != nil {
		return k.carrier, nil
	}
	err := k.h.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: dummyName}})
	name := dummyName
	if err != nil && !errors.Is(err, syscall.EEXIST) {
		name = "lo"
	}
	l, err := k.h.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	if err := k.h.LinkSetUp(l); err != nil {
		return nil, fmt.Errorf("set interface %s up: %w", name, err)
	}
	k.carrier = l
	return l, nil
}

// endpointAddr is an address that the node never picks as a source: host scope
// for IPv4, deprecated from the start for IPv6.
func endpointAddr(a netip.Addr) *netlink.Addr {
	out := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
	if a.Is4() {
		out.Scope = unix.RT_SCOPE_HOST
		return out
	}
	out.Flags = unix.IFA_F_NODAD
	out.ValidLft = 1<<31 - 1
	return out
}

// Addrs implements Interface.
func (k *Kernel) Addrs() ([]netip.Addr, error) {
	list, err := whole(func() ([]netlink.Addr, error) { return k.h.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var out []netip.Addr
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			out = append(out, addr.Unmap())
		}
	}
	return out, nil
}
