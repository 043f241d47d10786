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

// families are the two address families, which are equals everywhere.
var families = []iptables.Family{iptables.IPv4, iptables.IPv6}

func versionOf(a netip.Addr) iptables.Family {
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
	chainHome    = "NAMEGATE-HOME"
	chainPorts   = "NAMEGATE-PORTS"
	chainIfaces  = "NAMEGATE-IFACES"
	chainSpoofed = "NAMEGATE-FOREIGN"
	chainMarked  = "NAMEGATE-MARKED"
	chainNames   = "NAMEGATE-NAMES"
	chainNamed   = "NAMEGATE-NAMED"
	chainDrop    = "NAMEGATE-DROP"
	chainIngress = "NAMEGATE-INGRESS"

	setSelected   = "selected"
	setIngress    = "ingress"
	setDispatched = "judged"
	setHome       = "home"
)

func setPrefix(f iptables.Family) string {
	if f == iptables.IPv6 {
		return "NG6-"
	}
	return "NG4-"
}

// ownSet tells whether a set is one of ours.
func ownSet(name string) bool {
	return strings.HasPrefix(name, "NG4-") || strings.HasPrefix(name, "NG6-")
}

func digest(s string, n int) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:n]
}

const podChainPrefix = ChainPrefix + "P-"

func podChain(r policy.PodRef) string { return podChainPrefix + dataplane.PodID(r) }

// singlePorts ends the name of the set of the single ports of a pod.
const singlePorts = "ports"

// GrantSetName is the set of the grants of a pod on a port set: one for all single ports. The
// digest only keeps the name short; the chain's rules spell the port set.
func GrantSetName(r policy.PodRef, ports policy.PortSet, f iptables.Family) string {
	if _, _, single := ports.Single(); single {
		return setPrefix(f) + dataplane.PodID(r) + "-" + singlePorts
	}
	return setPrefix(f) + dataplane.PodID(r) + "-" + digest(string(ports), 8)
}

// StaticSets are the sets that exist whenever an agent has run.
func StaticSets() []ipset.Set {
	var out []ipset.Set
	for _, f := range families {
		v6 := f == iptables.IPv6
		out = append(out,
			ipset.Set{Name: setPrefix(f) + setSelected, Type: ipset.HashIP, IPv6: v6},
			ipset.Set{Name: setPrefix(f) + setIngress, Type: ipset.HashIP, IPv6: v6},
			ipset.Set{Name: setPrefix(f) + setDispatched, Type: ipset.HashIP, IPv6: v6},
			ipset.Set{Name: setPrefix(f) + setHome, Type: ipset.HashNetIface, IPv6: v6},
		)
	}
	return out
}
