package ruleset

import (
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// PeerSet renders members of peers; nil has none.
func PeerSet(name string, kind policy.PeerKind, members *policy.PeerSet) nft.PeerSet {
	out := nft.PeerSet{Name: name}
	switch kind {
	case policy.PeerNetworks:
		out.Kind = nft.PeerNetworks
	case policy.PeerPorts:
		out.Kind = nft.PeerPorts
	}
	if members == nil {
		return out
	}
	out.Addrs, out.Networks = members.Addrs, members.Networks
	for _, at := range members.Ports {
		out.Ports = append(out.Ports, nft.PeerPort{Addr: at.Addr, Protocol: at.Protocol.String(), Port: at.Port})
	}
	return out
}
