package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Protocol is an IANA assigned IP protocol number. The zero value means any protocol.
// Source: https://www.iana.org/assignments/protocol-numbers.
type Protocol uint8

// The protocols a rule can name.
const (
	AnyProtocol Protocol = 0
	TCP         Protocol = 6
	UDP         Protocol = 17
	SCTP        Protocol = 132
)

// String returns the lower-case name that iptables and PortSet use, "any" for
// AnyProtocol and the decimal number for a protocol without a name here.
func (p Protocol) String() string {
	switch p {
	case AnyProtocol:
		return "any"
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return strconv.Itoa(int(p))
}

// PortRange is the ports First to Last, both inclusive, of one protocol.
// First 0 with Last 65535 is every port. With AnyProtocol the ports mean nothing.
type PortRange struct {
	Protocol    Protocol
	First, Last uint16
}

// PortSet is a set of protocols and ports in canonical text: equal sets are
// equal strings, so a PortSet is a map key and can be read by a person.
//
// The text is "any" (every protocol and port), or ranges joined by commas in
// the order of protocol number and port, merged where they touch:
// "tcp/443,tcp/8000-9000,udp/53,sctp". A protocol without a slash has every port.
// The empty string is the empty set and contains nothing.
type PortSet string

// AnyPort is every protocol and every port.
const AnyPort PortSet = "any"

// NewPortSet returns the canonical set of the union of ranges. A range whose
// Last is below First is empty and adds nothing.
func NewPortSet(ranges ...PortRange) PortSet {
	var rs []PortRange
	for _, r := range ranges {
		if r.Protocol == AnyProtocol {
			return AnyPort
		}
		if r.First <= r.Last {
			rs = append(rs, r)
		}
	}
	slices.SortFunc(rs, func(a, b PortRange) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.First, b.First))
	})
	merged := rs[:0]
	for _, r := range rs {
		if n := len(merged); n > 0 && merged[n-1].Protocol == r.Protocol && int(r.First) <= int(merged[n-1].Last)+1 {
			merged[n-1].Last = max(merged[n-1].Last, r.Last)
			continue
		}
		merged = append(merged, r)
	}
	texts := make([]string, len(merged))
	for i, r := range merged {
		texts[i] = r.String()
	}
	return PortSet(strings.Join(texts, ","))
}

// String returns the range as a PortSet has it.
func (r PortRange) String() string {
	switch {
	case r.Protocol == AnyProtocol || r.First == 0 && r.Last == 65535:
		return r.Protocol.String()
	case r.First == r.Last:
		return fmt.Sprintf("%s/%d", r.Protocol, r.First)
	}
	return fmt.Sprintf("%s/%d-%d", r.Protocol, r.First, r.Last)
}

// ParsePortSet reads the text form, canonical or not, and returns the canonical set.
// The error names the part that is not a range.
func ParsePortSet(s string) (PortSet, error) {
	rs, err := PortSet(s).parse()
	return NewPortSet(rs...), err
}

// parse returns the ranges of the text, none with an error.
func (s PortSet) parse() (rs []PortRange, err error) {
	if s == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(string(s), ",") {
		r, ok := parseRange(part)
		if !ok {
			return nil, fmt.Errorf("port set %q: %q is not PROTOCOL, PROTOCOL/PORT or PROTOCOL/FIRST-LAST", s, part)
		}
		rs = append(rs, r)
	}
	return rs, nil
}

func parseRange(s string) (PortRange, bool) {
	proto, ports, found := strings.Cut(s, "/")
	r := PortRange{Last: 65535}
	switch proto {
	case "any":
		return r, !found
	case "tcp":
		r.Protocol = TCP
	case "udp":
		r.Protocol = UDP
	case "sctp":
		r.Protocol = SCTP
	default:
		return r, false
	}
	if !found {
		return r, true
	}
	first, last, isRange := strings.Cut(ports, "-")
	f, err := strconv.ParseUint(first, 10, 16)
	if err != nil {
		return r, false
	}
	r.First, r.Last = uint16(f), uint16(f)
	if isRange {
		l, err := strconv.ParseUint(last, 10, 16)
		if err != nil || l < f {
			return r, false
		}
		r.Last = uint16(l)
	}
	return r, true
}

// Ranges returns the set's ranges in canonical order; for AnyPort the one range of
// AnyProtocol. Text that NewPortSet did not make yields nil.
func (s PortSet) Ranges() []PortRange {
	rs, _ := s.parse()
	return rs
}

// Single returns the protocol and the port of a set that is one port alone, but for port 0.
func (s PortSet) Single() (p Protocol, port uint16, is bool) {
	r, ok := parseRange(string(s))
	return r.Protocol, r.First, ok && r.First == r.Last && r.First != 0
}

// Contains tells whether the set holds the port of the protocol. A protocol
// without ports (ICMP, say) is asked for with port 0.
func (s PortSet) Contains(p Protocol, port uint16) bool {
	// It is asked for every connection and every rule where something is taken away, so
	// it makes no list of Ranges.
	for part := range strings.SplitSeq(string(s), ",") {
		r, ok := parseRange(part)
		if ok && (r.Protocol == AnyProtocol || r.Protocol == p && r.First <= port && port <= r.Last) {
			return true
		}
	}
	return false
}

// covers tells whether the set holds another, whose ranges are of protocols with ports.
func (s PortSet) covers(o PortSet) bool {
	return !slices.ContainsFunc(o.Ranges(), func(r PortRange) bool {
		return !slices.ContainsFunc(s.Ranges(), func(w PortRange) bool {
			return w.Protocol == AnyProtocol || w.Protocol == r.Protocol && w.First <= r.First && r.Last <= w.Last
		})
	})
}
