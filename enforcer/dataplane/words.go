package dataplane

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/namegate/namegate/policy"
)

// PeersName is the name of a set of peers, which is too long for two to share one; "" of everywhere.
func PeersName(p policy.Peer) string {
	if p.Kind == policy.PeerAnywhere {
		return ""
	}
	sum := sha256.Sum256([]byte(string(rune('0'+p.Kind)) + p.Key))
	return hex.EncodeToString(sum[:12])
}

// Ports returns the ranges of a port set: nil for every protocol and port, and for none an empty list.
func Ports(s policy.PortSet) []policy.PortRange {
	if s == policy.AnyPort {
		return nil
	}
	return append([]policy.PortRange{}, s.Ranges()...)
}
