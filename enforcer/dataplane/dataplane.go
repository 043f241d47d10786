package dataplane

import (
	"net/netip"

	"github.com/namegate/namegate/policy"
)

// State is all that a dataplane is to hold.
type State struct {
	Subjects Subjects
	// Members returns the peer set of a peer in the newest snapshot that has it, nil for none.
	Members func(policy.Peer) *policy.PeerSet
	Grants  Grants
	// Serving are the addresses on which agents serve DNS, Resolvers the addresses that
	// every subject may dial for DNS.
	Serving, Resolvers []netip.Addr
	// Recheck are addresses from and to which connections are still to be judged again.
	Recheck []netip.Addr
}

// Recovered is what an earlier agent's objects say of addresses.
type Recovered struct {
	// Isolated addresses were default-deny: connections of others have not been judged.
	Isolated map[netip.Addr]bool
	// Owners are the digests of the pods whose rules judged the addresses.
	Owners map[netip.Addr]string
	// Peers are the IDs of the rule lists of the addresses; an address without rules about
	// peers has none.
	Peers map[netip.Addr]string
}
