package conntrack

import (
	"errors"
	"net/netip"
	"syscall"
	"time"
)

// Flow is one tracked connection as its first packet dialled it.
type Flow struct {
	Protocol uint8 // IANA protocol number
	Src, Dst netip.AddrPort
	// Peer is what Dst really is after destination NAT; equal to Dst without.
	Peer netip.AddrPort
	Mark uint32
	Zone uint16
	// Offloaded: the connection is in a flow table, which forwards its packets past all rules.
	Offloaded bool
	// tuple is the kernel's own rendering of the original direction; it names
	// the flow for changes, whatever its protocol.
	tuple []byte
}

// Query says which connections to list.
type Query struct {
	// Sources, if there are any, are sources of the original direction, and Peers actual
	// destinations: a connection is listed if it has one of each.
	Sources, Peers []netip.Addr
	// In the mark of a listed connection the bits of Mask equal those of Mark; with a
	// Mask of 0 every mark matches.
	Mark, Mask uint32
}

// Interface is the enforcer's view of connection tracking.
type Interface interface {
	// Flows lists connections. None is no error. It scans through the node's whole
	// table once, and not at all without sources and peers.
	Flows(q Query) ([]Flow, error)
	// Established hands over the connections that were answered, of all sources, in whose mark
	// the bits of mask equal those of mark: their status has ASSURED or, after the handshake,
	// OFFLOAD, and those of TCP are in the state ESTABLISHED. idle is the time since the last
	// packet in either direction, in whole seconds rounded up; 0 where that is not known: the
	// connection has more time left than the kernel's timeout for its protocol. It scans through
	// the node's whole table once. each must not call the Interface and not keep the flow.
	Established(mark, mask uint32, each func(f *Flow, idle time.Duration)) error
	// SetMark sets the bits of mask in the flow's mark to the bits of value. A flow that
	// has ended meanwhile is no error.
	SetMark(f Flow, value, mask uint32) error
	// Lookup returns the connection of a protocol with ports that began by a packet
	// from src to dst, and whether there is one. It costs one question, however many
	// connections there are. A protocol without ports has none.
	Lookup(proto uint8, src, dst netip.AddrPort) (Flow, bool, error)
	// Delete removes the flow; a flow that has ended meanwhile is no error. It does not
	// stop traffic by itself: the next packet makes a new entry. A flow table gives the packets of a
	// removed flow back to the rules. Kernels before 6.4 do not remove an offloaded flow: IsBusy holds
	// for the error.
	Delete(f Flow) error
}

// IsBusy tells whether an error says that the kernel does not remove offloaded flows.
func IsBusy(err error) bool { return errors.Is(err, syscall.EBUSY) }

// Same tells whether two listings of a flow are of the same connection.
func (f Flow) Same(o Flow) bool {
	return f.Protocol == o.Protocol && f.Src == o.Src && f.Dst == o.Dst && f.Zone == o.Zone
}
