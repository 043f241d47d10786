package lists

import (
	"net/netip"

	"github.com/namegate/namegate/policy"
)

// Rule is one rule. Lists share it, and it is immutable.
type Rule struct {
	// Peers is the name of a PeerSet, which holds what is reached; "" for everywhere.
	Peers string
	// Entries is the name of a set of entries in place of Peers: the rule is about what was
	// dialled.
	Entries string
	// Ports are of what the rule is about, nil for every protocol and port.
	Ports  []policy.PortRange
	Action Action
	// Led: connections of TCP to Entries are led to the relay, and Action is of what is not.
	Led bool
}

// Action is the effect of a rule.
type Action uint8

// The actions of rules.
const (
	Accept Action = iota
	Reject        // deny with an answer
	Drop          // deny without an answer
	Pass          // on to the next tier
)

// PeerSet is a set of destinations that rules share. One of the lists is its content.
type PeerSet struct {
	Name     string
	Kind     policy.PeerKind
	Addrs    []netip.Addr
	Networks []netip.Prefix // disjoint
	Ports    []policy.PeerPort
}
