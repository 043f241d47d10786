package policy

import (
	"fmt"
	"net/netip"
	"slices"
)

// noHost tells whether an address is in an IPv4 range that holds no unicast host and that netip has no word
// for: "this network" (RFC 1122 §3.2.1.3) and the reserved block, with the broadcast
// address (RFC 1112 §4).
func noHost(a netip.Addr) bool {
	return a.Is4() && (a.As4()[0] == 0 || a.As4()[0] >= 240)
}

// CleanAddr returns the address as snapshots have it: an IPv4 one unmapped, without a zone.
func CleanAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// CleanAddrs returns the addresses as CleanAddr has them, each once.
func CleanAddrs(addrs []netip.Addr) []netip.Addr {
	var clean []netip.Addr
	for _, a := range addrs {
		if a = CleanAddr(a); !slices.Contains(clean, a) {
			clean = append(clean, a)
		}
	}
	return clean
}

// CheckPodAddr returns an error for an address that no pod can have: one that is not a
// unicast host's, or that is link-local. It takes v4-mapped addresses as IPv4.
func CheckPodAddr(a netip.Addr) error {
	kind := ""
	switch b := a.Unmap(); {
	case !b.IsValid():
		return fmt.Errorf("an address is missing; write the pod's own")
	case b.Zone() != "":
		kind = "has a zone"
	case b.IsUnspecified() || noHost(b):
		kind = "is no host's"
	case b.IsLoopback():
		kind = "is a loopback address"
	case b.IsMulticast():
		kind = "is a multicast address"
	case b.IsLinkLocalUnicast():
		kind = "is a link-local address"
	default:
		return nil
	}
	return fmt.Errorf("%v %s, so no pod can have it and it is not used; write the pod's own unicast address", a, kind)
}
