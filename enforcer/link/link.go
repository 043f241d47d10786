// Package link is the seam to the node's interfaces, routes, neighbours and
// addresses: where a pod's address is genuine, and the endpoint's addresses.
package link

import (
	"context"
	"errors"
	"net/netip"
)

// Home is the place where an address is genuine.
type Home struct {
	// Iface is the interface that the route to the address names: the pod's own
	// on routed networks, the bridge on bridged ones.
	Iface string
	// Port is the bridge port that the address's MAC is behind, "" where Iface
	// is not a bridge.
	Port string
}

// Bridged tells whether the home is a bridge port.
func (h Home) Bridged() bool { return h.Port != "" }

// Interface is what the enforcer needs of the node's links. All methods may be
// called from several goroutines.
type Interface interface {
	// Home finds where a pod's address lives. The error satisfies IsUnknown when
	// it does not live on this node, or not yet: the pod's interface is not up,
	// or the bridge has not heard it. Asking makes the node look for it.
	Home(addr netip.Addr) (Home, error)
	// BridgesFiltered tells whether packets that cross a bridge pass through
	// netfilter, IPv4 and IPv6.
	BridgesFiltered() (bool, error)
	// Names returns the names of all interfaces of the node.
	Names() (map[string]bool, error)
	// AddAddr gives the node an address of its own, reachable from pods, that
	// never becomes a source address of the node. One that is there is no error.
	// Where the node has no IPv6, IsDisabled holds for an IPv6 address's error.
	AddAddr(addr netip.Addr) error
	// DelAddr takes such an address away; one that is not there is no error.
	DelAddr(addr netip.Addr) error
	// RemoveCarrier removes the interface that AddAddr made, if it made one.
	RemoveCarrier() error
	// Addrs returns every address of the node.
	Addrs() ([]netip.Addr, error)
	// Watch sends a token after links, routes, addresses or neighbours changed,
	// until ctx ends; changes while a token waits are one token.
	Watch(ctx context.Context) (<-chan struct{}, error)
}

var errDisabled = errors.New("IPv6 is disabled on this node")

// IsDisabled tells whether err says that the node has no IPv6.
func IsDisabled(err error) bool { return errors.Is(err, errDisabled) }

var errUnknown = errors.New("no interface of this node leads to it")

// IsUnknown tells whether err says that an address has no home on this node.
func IsUnknown(err error) bool { return errors.Is(err, errUnknown) }
