package dataplane

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
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

// Ports renders a port set: nil for every protocol and port.
func Ports(s policy.PortSet) []layout.PortRange {
	if s == policy.AnyPort {
		return nil
	}
	out := []layout.PortRange{}
	for _, p := range s.Ranges() {
		out = append(out, layout.PortRange{Protocol: p.Protocol.String(), First: p.First, Last: p.Last})
	}
	return out
}
