package wire

import (
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
)

// Bound is one element of an interval set: where a range begins, or the first address
// behind it.
type Bound struct {
	Addr netip.Addr
	End  bool
}

// Ranges pairs the bounds of an interval set. A range without an end extends to the
// highest address.
func Ranges(bounds []Bound) (out []netipx.IPRange) {
	slices.SortFunc(bounds, func(a, b Bound) int {
		if c := a.Addr.Compare(b.Addr); c != 0 || a.End == b.End {
			return c
		}
		if a.End {
			return -1
		}
		return 1
	})
	open := false
	for _, b := range bounds {
		n := len(out) - 1
		if open {
			out[n] = netipx.IPRangeFrom(out[n].From(), b.Addr.Prev())
		}
		if open = !b.End; open {
			out = append(out, netipx.IPRangeFrom(b.Addr, netipx.PrefixLastIP(netip.PrefixFrom(b.Addr, 0))))
		}
	}
	return out
}

// ParseRange reads a range, a prefix or one address.
func ParseRange(s string) (r netipx.IPRange, ok bool) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return netipx.RangeOfPrefix(p), true
	}
	first, last, is := strings.Cut(s, "-")
	if !is {
		last = first
	}
	from, err := netip.ParseAddr(first)
	to, err2 := netip.ParseAddr(last)
	return netipx.IPRangeFrom(from, to), err == nil && err2 == nil
}
