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

// Evidence is where the knowledge of an address's home comes from.
type Evidence uint8

const (
	// Heard is an answer on the bridge, by ARP or neighbour discovery. Every pod of the
	// bridge can give it for every address.
	Heard Evidence = iota
	// Seen is the kernel's own state: the node's route to the address, or the addresses in the
	// network namespace behind a bridge port.
	Seen
)

// Found is where an address lives, and by which evidence.
type Found struct {
	Home
	Evidence Evidence
}

// Uplink is an interface that may lead out of the node.
type Uplink struct {
	Name    string
	Addrs   []netip.Addr
	Default bool // it has a default route
}

// Interface is the enforcer's view of the node's links. All methods may be called from
// several goroutines.
type Interface interface {
	// Homes finds the homes of pods' addresses. The result has no entry for an address
	// that does not live on this node, or not yet: the pod's interface is not up, or the
	// bridge has not learnt it. Asking makes the node look for it. An address has no home
	// at all if the ports of its bridge lead to other addresses, all of them or the port
	// that answers for it, and several homes if several ports lead to it. After an error
	// the result has the homes that were found.
	//
	// shared are the addresses whose route leads to an interface of a whole network, with its
	// name: a switch that is no bridge of the kernel, such as Open vSwitch, connects them, and
	// netfilter sees only what leaves it by that interface.
	Homes(addrs []netip.Addr) (homes map[netip.Addr][]Found, shared map[netip.Addr]string, err error)
	// BridgesFiltered tells whether packets that cross a bridge pass through
	// netfilter, IPv4 and IPv6.
	BridgesFiltered() (bool, error)
	// Indexes returns the indexes of all interfaces of the node by their names. The index of an
	// interface is another if it was made anew with the same name.
	Indexes() (map[string]int, error)
	// AddAddr gives the node an address of its own, reachable from pods, that
	// never becomes a source address of the node. One that is there is no error.
	// Where the node has no IPv6, IsDisabled holds for an IPv6 address's error.
	AddAddr(addr netip.Addr) error
	// DelAddr removes such an address; a missing one is no error.
	DelAddr(addr netip.Addr) error
	// RemoveCarrier removes the interface that AddAddr made, if it made one.
	RemoveCarrier() error
	// Addrs returns every address of the node.
	Addrs() ([]netip.Addr, error)
	// Uplinks returns the interfaces, without loopback, that have an address or a default route of the
	// main table, sorted by name.
	Uplinks() ([]Uplink, error)
	// Route returns the name of the interface by which packets to an address leave the node.
	Route(addr netip.Addr) (string, error)
	// Watch sends a token after links, routes, addresses or neighbours changed,
	// until ctx ends; changes while a token waits are one token. After an error, which lost
	// receives, it goes on.
	Watch(ctx context.Context, lost func(error)) (<-chan struct{}, error)
}

var errDisabled = errors.New("IPv6 is disabled on this node")

// IsDisabled tells whether err says that the node has no IPv6.
func IsDisabled(err error) bool { return errors.Is(err, errDisabled) }

// errUnknown says that an address has no home on this node.
var errUnknown = errors.New("no interface of this node leads to it")
