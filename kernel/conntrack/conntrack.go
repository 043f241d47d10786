package conntrack

import "net/netip"

// Flow is one tracked connection as its first packet dialled it.
type Flow struct {
	Protocol uint8 // IANA protocol number
	Src, Dst netip.AddrPort
	// Peer is what Dst really is after destination NAT; equal to Dst without.
	Peer netip.AddrPort
	Mark uint32
	Zone uint16
	// tuple is the kernel's own rendering of the original direction; it names
	// the flow for changes, whatever its protocol.
	tuple []byte
}

// Query says which connections to list.
type Query struct {
	// Sources are those of the original direction: a connection is listed if it has
	// one of them.
	Sources []netip.Addr
	// Peers, where there are any, are what is really reached: a connection is listed if
	// one of them is, and its source is one of Sources.
	Peers []netip.Addr
	// Of a listed connection's mark the bits of Mask are those of Mark; with a Mask
	// of 0 every mark will do.
	Mark, Mask uint32
}

// Interface is what the enforcer needs of connection tracking.
type Interface interface {
	// Flows lists connections. None is no error. It scans through the node's whole
	// table once, for one family of sources or both, and not at all without sources.
	Flows(q Query) ([]Flow, error)
	// SetMark writes the bits of mask in the flow's mark to those of value. A
	// flow that has ended meanwhile is no error.
	SetMark(f Flow, value, mask uint32) error
	// Lookup returns the connection of a protocol with ports that began by a packet
	// from src to dst, and whether there is one. It costs one question, however many
	// connections there are. A protocol without ports has none.
	Lookup(proto uint8, src, dst netip.AddrPort) (Flow, bool, error)
	// Delete forgets the flow; one that has ended meanwhile is no error. It does
	// not stop traffic by itself: the next packet makes a new entry.
	Delete(f Flow) error
}
