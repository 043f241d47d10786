package nftrules

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// PeersName is the name of a set of peers, which is too long for two to share one.
func PeersName(p policy.Peer) string {
	sum := sha256.Sum256([]byte(string(rune('0'+p.Kind)) + p.Key))
	return hex.EncodeToString(sum[:12])
}

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

// Ports renders a port set: nil for every protocol and port.
func Ports(s policy.PortSet) []nft.PortRange {
	if s == policy.AnyPort {
		return nil
	}
	out := []nft.PortRange{}
	for _, p := range s.Ranges() {
		out = append(out, nft.PortRange{Protocol: p.Protocol.String(), First: p.First, Last: p.Last})
	}
	return out
}
