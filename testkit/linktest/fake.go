// Package linktest has interfaces and addresses of a node in memory.
package linktest

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/namegate/namegate/kernel/link"
)

// Fake is a link.Interface in memory.
type Fake struct {
	mu     sync.Mutex
	homes  map[netip.Addr][]link.Found
	shared map[netip.Addr]string
	addrs  map[netip.Addr]bool
	events chan struct{}
	blind  bool
	made   map[string]int // how often interfaces were made anew
}

var _ link.Interface = (*Fake)(nil)

// NewFake returns a fake node with the given addresses and no pods.
func NewFake(addrs ...netip.Addr) *Fake {
	f := &Fake{homes: map[netip.Addr][]link.Found{}, shared: map[netip.Addr]string{}, addrs: map[netip.Addr]bool{}, events: make(chan struct{}, 1), made: map[string]int{}}
	for _, a := range addrs {
		f.addrs[a] = true
	}
	return f
}

// SetHome says where the kernel sees an address live; the zero Home: it knows nothing of
// it. Watchers get a token.
func (f *Fake) SetHome(addr netip.Addr, h link.Home) {
	f.mu.Lock()
	delete(f.homes, addr)
	f.mu.Unlock()
	if h == (link.Home{}) {
		f.notify()
		return
	}
	f.SetFound(addr, link.Found{Home: h, Evidence: link.Seen})
}

// SetFound says what Homes finds of an address; nothing: that it has no home at all.
// Watchers get a token.
func (f *Fake) SetFound(addr netip.Addr, found ...link.Found) {
	f.mu.Lock()
	f.homes[addr] = found
	f.mu.Unlock()
	f.notify()
}

func (f *Fake) notify() {
	select {
	case f.events <- struct{}{}:
	default:
	}
}

// Homes implements link.Interface.
func (f *Fake) Homes(addrs []netip.Addr) (homes map[netip.Addr][]link.Found, shared map[netip.Addr]string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	homes, shared = map[netip.Addr][]link.Found{}, map[netip.Addr]string{}
	for _, a := range addrs {
		if h, ok := f.homes[a]; ok {
			homes[a] = h
		} else if iface, ok := f.shared[a]; ok {
			shared[a] = iface
		}
	}
	return homes, shared, nil
}

// SetShared says which interface of a whole network leads to an address. Watchers get a token.
func (f *Fake) SetShared(addr netip.Addr, iface string) {
	f.mu.Lock()
	f.shared[addr] = iface
	f.mu.Unlock()
	f.notify()
}

// SetBlind says that netfilter does not see bridged packets, or sees them.
func (f *Fake) SetBlind(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blind = on
}

// BridgesFiltered implements link.Interface.
func (f *Fake) BridgesFiltered() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.blind, nil
}

// Remake makes an interface anew.
func (f *Fake) Remake(name string) {
	f.mu.Lock()
	f.made[name]++
	f.mu.Unlock()
	f.notify()
}

// Indexes implements link.Interface: the interfaces are those of the homes.
func (f *Fake) Indexes() (map[string]int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int{}
	for _, found := range f.homes {
		for _, h := range found {
			out[h.Iface] = 1 + f.made[h.Iface]
			if h.Bridged() {
				out[h.Port] = 1 + f.made[h.Port]
			}
		}
	}
	return out, nil
}

// AddAddr implements link.Interface.
func (f *Fake) AddAddr(addr netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addrs[addr] = true
	return nil
}

// DelAddr implements link.Interface.
func (f *Fake) DelAddr(addr netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.addrs, addr)
	return nil
}

// RemoveCarrier implements link.Interface; the fake makes no interface.
func (f *Fake) RemoveCarrier() error { return nil }

// Addrs implements link.Interface; the result is sorted.
func (f *Fake) Addrs() ([]netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Keys(f.addrs), netip.Addr.Compare), nil
}

// Uplinks implements link.Interface: all addresses are of eth0, which has the default route.
func (f *Fake) Uplinks() ([]link.Uplink, error) {
	addrs, err := f.Addrs()
	return []link.Uplink{{Name: "eth0", Addrs: addrs, Default: true}}, err
}

// Route implements link.Interface: of the node's own address by lo, of one without a home by eth0.
func (f *Fake) Route(addr netip.Addr) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, own := f.addrs[addr]; own {
		return "lo", nil
	}
	if found := f.homes[addr]; len(found) > 0 {
		return found[0].Iface, nil
	}
	return "eth0", nil
}

// Watch implements link.Interface.
func (f *Fake) Watch(context.Context, func(error)) (<-chan struct{}, error) { return f.events, nil }
