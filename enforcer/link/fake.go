package link

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
)

// Fake is an Interface in memory.
type Fake struct {
	mu     sync.Mutex
	homes  map[netip.Addr]Home
	addrs  map[netip.Addr]bool
	events chan struct{}
	blind  bool
}

var _ Interface = (*Fake)(nil)

// NewFake returns a fake node with the given addresses and no pods.
func NewFake(addrs ...netip.Addr) *Fake {
	f := &Fake{homes: map[netip.Addr]Home{}, addrs: map[netip.Addr]bool{}, events: make(chan struct{}, 1)}
	for _, a := range addrs {
		f.addrs[a] = true
	}
	return f
}

// SetHome says where an address lives; the zero Home: nowhere. Watchers are told.
func (f *Fake) SetHome(addr netip.Addr, h Home) {
	f.mu.Lock()
	if h == (Home{}) {
		delete(f.homes, addr)
	} else {
		f.homes[addr] = h
	}
	f.mu.Unlock()
	select {
	case f.events <- struct{}{}:
	default:
	}
}

// Home implements Interface.
func (f *Fake) Home(addr netip.Addr) (Home, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h, ok := f.homes[addr]; ok {
		return h, nil
	}
	return Home{}, fmt.Errorf("%s: %w", addr, errUnknown)
}

// SetBlind says that netfilter does not see bridged packets, or sees them.
func (f *Fake) SetBlind(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blind = on
}

// BridgesFiltered implements Interface.
func (f *Fake) BridgesFiltered() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.blind, nil
}

// Names implements Interface: the interfaces are those of the homes.
func (f *Fake) Names() (map[string]bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]bool{}
	for _, h := range f.homes {
		for _, name := range []string{h.Iface, h.Port} {
			if name != "" {
				out[name] = true
			}
		}
	}
	return out, nil
}

// AddAddr implements Interface.
func (f *Fake) AddAddr(addr netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addrs[addr] = true
	return nil
}

// DelAddr implements Interface.
func (f *Fake) DelAddr(addr netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.addrs, addr)
	return nil
}

// RemoveCarrier implements Interface; the fake makes no interface.
func (f *Fake) RemoveCarrier() error { return nil }

// Addrs implements Interface; the result is sorted.
func (f *Fake) Addrs() ([]netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(maps.Keys(f.addrs), netip.Addr.Compare), nil
}

// Watch implements Interface.
func (f *Fake) Watch(context.Context) (<-chan struct{}, error) { return f.events, nil }
