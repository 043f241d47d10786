package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// dummyName is the interface that carries the endpoint's addresses. Where the
// kernel has no dummy driver, the loopback interface does.
const dummyName = "namegate0"

// Kernel is the Interface on the network namespace it was opened in.
type Kernel struct {
	h      *netlink.Handle
	dumps  *nl.SocketHandle
	strict bool
}

var _ Interface = (*Kernel)(nil)

// Open opens a netlink socket in the calling thread's network namespace.
func Open() (*Kernel, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open route netlink socket: %w", err)
	}
	s, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("open route netlink socket: %w", err)
	}
	// The kernel applies the filter of a listing only with this strict check.
	strict := unix.SetsockoptInt(s.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1) == nil
	return &Kernel{h: h, dumps: &nl.SocketHandle{Socket: s}, strict: strict}, nil
}

// Close closes the sockets.
func (k *Kernel) Close() {
	k.h.Close()
	k.dumps.Close()
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

// Indexes implements Interface.
func (k *Kernel) Indexes() (map[string]int, error) {
	links, err := consistent(func() ([]port, error) { return k.listLinks(0) })
	if err != nil {
		return nil, fmt.Errorf("list the node's interfaces: %w", err)
	}
	out := make(map[string]int, len(links))
	for _, l := range links {
		out[l.name] = l.index
	}
	return out, nil
}

// consistentTries is how often a list is asked for that changes while the kernel lists it.
const consistentTries = 50

// consistent returns a list that did not change while the kernel listed it: other lists
// may lack entries that were there all the time.
func consistent[T any](list func() (T, error)) (out T, err error) {
	for range consistentTries {
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
	list, err := consistent(func() ([]netlink.Addr, error) { return k.h.AddrList(nil, netlink.FAMILY_ALL) })
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

// Uplinks implements Interface.
func (k *Kernel) Uplinks() ([]Uplink, error) {
	links, err := consistent(func() ([]port, error) { return k.listLinks(0) })
	if err != nil {
		return nil, fmt.Errorf("list the node's interfaces: %w", err)
	}
	addrs, err := consistent(func() ([]netlink.Addr, error) { return k.h.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	defaults, err := consistent(k.defaults)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var out []Uplink
	for _, l := range links {
		u := Uplink{Name: l.name, Default: defaults[l.index]}
		for _, a := range addrs {
			if addr, ok := netip.AddrFromSlice(a.IP); ok && a.LinkIndex == l.index {
				u.Addrs = append(u.Addrs, addr.Unmap())
			}
		}
		if l.name != "lo" && (u.Default || len(u.Addrs) > 0) {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b Uplink) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// defaults returns the indexes of the interfaces of default routes.
func (k *Kernel) defaults() (map[int]bool, error) {
	out := map[int]bool{}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := k.h.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_DST)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			out[r.LinkIndex] = true
			for _, hop := range r.MultiPath {
				out[hop.LinkIndex] = true
			}
		}
	}
	return out, nil
}
