package intercept

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Generations serve on addresses beside the default endpoint: the rest of its
// /24 from .64 on, and for IPv6 a block of 256 below the same prefix. netpolicyfor.Endpoint has their prefixes.
var (
	firstServing4 = netip.MustParseAddr("169.254.20.64")
	lastServing4  = netip.MustParseAddr("169.254.20.254")
	firstServing6 = netip.MustParseAddr("fd5c:7a1e:93b4::1:0")
	lastServing6  = netip.MustParseAddr("fd5c:7a1e:93b4::1:ff")
)

// InRange tells whether a generation may serve on an address.
func InRange(a netip.Addr) bool {
	return a.Compare(firstServing4) >= 0 && a.Compare(lastServing4) <= 0 && a.Is4() ||
		a.Compare(firstServing6) >= 0 && a.Compare(lastServing6) <= 0 && a.Is6()
}

// IsRelay tells whether the relay of an agent, this one or another, may accept connections there.
func IsRelay(at netip.AddrPort) bool { return InRange(at.Addr()) && at.Port() != 53 }

func freeAddr(v6 bool, taken []netip.Addr) (netip.Addr, error) {
	first, last := firstServing4, lastServing4
	if v6 {
		first, last = firstServing6, lastServing6
	}
	for a := first; a.Compare(last) <= 0; a = a.Next() {
		if !slices.Contains(taken, a) {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("every serving address from %s to %s is taken; remove those of agents that are gone", first, last)
}

// disjoint returns prefixes of the same addresses that do not overlap, sorted.
func disjoint(all []netip.Prefix) []netip.Prefix {
	var b netipx.IPSetBuilder
	for _, p := range all {
		b.AddPrefix(p)
	}
	set, err := b.IPSet()
	if err != nil { // of invalid prefixes, which Network has not
		return nil
	}
	return set.Prefixes()
}
