package peers

import (
	"net/netip"
	"slices"
)

// span is the addresses first to last, both inclusive, of one family.
type span struct{ first, last netip.Addr }

// disjoint returns the union of prefixes, sorted, without any that overlap or that
// one wider prefix could stand for: no fewer would do.
func disjoint(of []span) []netip.Prefix {
	return prefixesOf(joined(of))
}

// prefixesOf returns the fewest prefixes that have the addresses of spans, which are joined.
func prefixesOf(spans []span) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range spans {
		out = s.prefixes(out)
	}
	return out
}

// spanOf returns the addresses of a masked prefix.
func spanOf(p netip.Prefix) span { return span{p.Addr(), lastOf(p)} }

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		if i%8 == 0 {
			b[i/8], i = 0xff, i+7
			continue
		}
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// without returns what is left of s without the holes, which may overlap.
func (s span) without(holes []span) []span {
	var rest []span
	next := s.first
	for _, h := range joined(holes) {
		if next.Less(h.first) {
			rest = append(rest, span{next, h.first.Prev()})
		}
		if next = h.last.Next(); !next.IsValid() || s.last.Less(next) {
			return rest
		}
	}
	return append(rest, span{next, s.last})
}

// joined returns the spans sorted, those that overlap or touch as one.
func joined(of []span) []span {
	sorted := slices.Clone(of)
	slices.SortFunc(sorted, func(a, b span) int { return a.first.Compare(b.first) })
	out := sorted[:0]
	for _, s := range sorted {
		// After the last address of a family comes none, and nothing touches it.
		if n := len(out); n > 0 && s.first.BitLen() == out[n-1].last.BitLen() &&
			(!out[n-1].last.Less(s.first) || out[n-1].last.Next() == s.first) {
			if out[n-1].last.Less(s.last) {
				out[n-1].last = s.last
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// prefixes appends the fewest prefixes that have the addresses of s.
func (s span) prefixes(out []netip.Prefix) []netip.Prefix {
	width := s.first.BitLen()
	s.walk(func(from wide, host int) bool {
		out = append(out, netip.PrefixFrom(from.addr(width), width-host))
		return true
	})
	return out
}

// walk calls each with the fewest prefixes of s, as their first addresses and how many
// bits each leaves to hosts, until it returns false.
func (s span) walk(each func(from wide, host int) bool) {
	from, last, width := wideOf(s.first), wideOf(s.last), s.first.BitLen()
	for {
		left := last.minus(from)
		host := min(from.zeros(), left.log(), width)
		if !each(from, host) {
			return
		}
		size := wideBit(host)
		if host == 128 || left.less(size) {
			return // there is no address after it in s
		}
		from = from.plus(size)
	}
}

// count returns how many prefixes spans make.
func count(spans []span) int {
	n := 0
	for _, s := range spans {
		s.walk(func(wide, int) bool { n++; return true })
	}
	return n
}

// first returns of spans, which are joined, those addresses that the first n of their
// prefixes have.
func first(spans []span, n int) []span {
	var out []span
	for _, s := range spans {
		if n == 0 {
			break
		}
		part, width := span{s.first, s.first}, s.first.BitLen()
		s.walk(func(from wide, host int) bool {
			part.last = lastOf(netip.PrefixFrom(from.addr(width), width-host))
			n--
			return n > 0
		})
		out = append(out, part)
	}
	return out
}

// inSpans tells whether one of spans, which are joined, has a.
func inSpans(spans []span, a netip.Addr) bool {
	i, at := slices.BinarySearchFunc(spans, a, func(s span, a netip.Addr) int { return s.first.Compare(a) })
	return at || i > 0 && spans[i-1].last.BitLen() == a.BitLen() && !spans[i-1].last.Less(a)
}
