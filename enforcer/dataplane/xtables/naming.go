package xtables

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
)

// Families are the two address families, which are equals everywhere.
var Families = []iptables.Family{iptables.IPv4, iptables.IPv6}

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) iptables.Family {
	return familyOf(a.Is6())
}

func familyOf(ipv6 bool) iptables.Family {
	if ipv6 {
		return iptables.IPv6
	}
	return iptables.IPv4
}

// Names of chains and sets. All of ours begin with one of the two prefixes, and
// nothing else's may. What an agent of another layout has under them goes once this
// one's is in force; so a set whose type changes takes another name, as one of the
// kernel's is there as long as a rule asks it.
const (
	// ChainPrefix begins the names of all our chains.
	ChainPrefix  = "NAMEGATE-"
	chainPrefix  = ChainPrefix
	chainHome    = "NAMEGATE-HOME"
	chainPorts   = "NAMEGATE-PORTS"
	chainIfaces  = "NAMEGATE-IFACES"
	chainForeign = "NAMEGATE-FOREIGN"
	chainNames   = "NAMEGATE-NAMES"
	chainPeers   = "NAMEGATE-PEERS"
	chainAllow   = "NAMEGATE-ALLOW"
	chainDrop    = "NAMEGATE-DROP"

	SetSelected   = "selected"
	SetDispatched = "judged"
	SetOwed       = "owed"
	SetHome       = "home"
	SetEndpoint   = "endpoint"
	SetResolvers  = "resolvers"
)

func SetPrefix(f iptables.Family) string {
	if f == iptables.IPv6 {
		return "NG6-"
	}
	return "NG4-"
}

// OwnSet tells whether a set is one of ours.
func OwnSet(name string) bool {
	return strings.HasPrefix(name, "NG4-") || strings.HasPrefix(name, "NG6-")
}

// PodID is a short, stable name of a pod for chains and sets: the first 12 hex
// digits of SHA-256 over its reference. Two pods of one node share one with a
// probability of about n²/2⁴⁹.
func PodID(r policy.PodRef) string {
	return digest(r.Namespace+"\x00"+r.Name+"\x00"+r.UID, 12)
}

func digest(s string, n int) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:n]
}

const podChainPrefix = chainPrefix + "P-"

// Names of what pods share, whose digests are of text that anybody who writes a
// NetworkPolicy chooses: too long for one to be found that is another's too.
const (
	listChainPrefix = chainPrefix + "R-"
	peerSetWord     = "p-"
	peerDigits      = 24
)

// listChain is the chain of all pods with one list of peers.
func listChain(l *dataplane.RuleList) string {
	if l.All() {
		return chainAllow
	}
	return listChainPrefix + l.ID
}

func podChain(r policy.PodRef) string { return podChainPrefix + PodID(r) }

// GrantSet is the name of the set of a pod's grants on one port set. The digest only keeps
// the name short; the chain's rules spell the port set.
func GrantSet(r policy.PodRef, ports policy.PortSet, ipv6 bool) string {
	return SetPrefix(familyOf(ipv6)) + PodID(r) + "-" + digest(string(ports), 8)
}

// PeerSetName is the set of peers of a family.
func PeerSetName(p policy.Peer, f iptables.Family) string {
	return SetPrefix(f) + peerSetWord + digest(string(rune('0'+p.Kind))+p.Key, peerDigits)
}

// StaticSets are those that exist whenever an agent has run.
func StaticSets() []ipset.Set {
	var out []ipset.Set
	for _, f := range Families {
		v6 := f == iptables.IPv6
		out = append(out,
			ipset.Set{Name: SetPrefix(f) + SetSelected, Type: ipset.HashIP, IPv6: v6},
			ipset.Set{Name: SetPrefix(f) + SetDispatched, Type: ipset.HashIP, IPv6: v6},
			ipset.Set{Name: SetPrefix(f) + SetOwed, Type: ipset.HashIP, IPv6: v6},
			ipset.Set{Name: SetPrefix(f) + SetHome, Type: ipset.HashNetIface, IPv6: v6},
			ipset.Set{Name: SetPrefix(f) + SetEndpoint, Type: ipset.HashIPPort, IPv6: v6},
			ipset.Set{Name: SetPrefix(f) + SetResolvers, Type: ipset.HashIPPort, IPv6: v6},
		)
	}
	return out
}
