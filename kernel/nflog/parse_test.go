package nflog

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nfattr"
	"github.com/namegate/namegate/policy"
)

// message is the attributes of a logged packet.
func message(prefix string, payload []byte) []byte {
	b := nfattr.AppendString(nil, attrPrefix, prefix)
	return nfattr.Append(b, attrPayload, payload)
}

// four and six are IP packets from and to documentation addresses.
func four(proto byte, options, fragment int, transport ...byte) []byte {
	b := make([]byte, 20+options)
	b[0], b[9] = byte(0x40|(5+options/4)), proto
	binary.BigEndian.PutUint16(b[6:], uint16(fragment))
	copy(b[12:], []byte{10, 1, 0, 5, 192, 0, 2, 1})
	return append(b, transport...)
}

func six(next byte, rest ...byte) []byte {
	b := make([]byte, 40)
	b[0], b[6] = 0x60, next
	from, to := netip.MustParseAddr("fd00:1::5").As16(), netip.MustParseAddr("2001:db8::1").As16()
	copy(b[8:], from[:])
	copy(b[24:], to[:])
	return append(b, rest...)
}

// extensionOf is an extension header of 8 bytes and more.
func extensionOf(next byte, more int, fragment uint16) []byte {
	b := make([]byte, 8+8*more)
	b[0], b[1] = next, byte(more)
	if fragment != 0 {
		binary.BigEndian.PutUint16(b[2:], fragment)
	}
	return b
}

func join(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

var ports = []byte{0x9c, 0x40, 0x01, 0xbb, 0, 0, 0, 0} // 40000 to 443

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what    string
		payload []byte
		want    string // PROTOCOL DESTINATION TYPE, "" for none
	}{
		{"TCP", four(6, 0, 0, ports...), "tcp 192.0.2.1:443 0"},
		{"UDP behind options", four(17, 12, 0, ports...), "udp 192.0.2.1:443 0"},
		{"SCTP", four(132, 0, 0, ports...), "sctp 192.0.2.1:443 0"},
		{"UDP-Lite", four(136, 0, 0, ports...), "136 192.0.2.1:443 0"},
		{"an ICMP echo", four(1, 0, 0, 8, 0, 0, 0), "1 192.0.2.1:0 8"},
		{"GRE has no ports", four(47, 0, 0, ports...), "47 192.0.2.1:0 0"},
		{"the first fragment", four(17, 0, 0x2000, ports...), "udp 192.0.2.1:443 0"},
		{"a later fragment", four(17, 0, 0x2001, ports...), "udp 192.0.2.1:0 0"},
		{"nothing behind the header", four(6, 0, 0), "tcp 192.0.2.1:0 0"},
		{"options that are cut", four(6, 20, 0)[:30], "tcp 192.0.2.1:0 0"},
		{"a header that is cut", four(6, 0, 0)[:19], ""},
		{"a length below a header's", append([]byte{0x44}, four(6, 0, 0, ports...)[1:]...), ""},
		{"TCP over IPv6", six(6, ports...), "tcp [2001:db8::1]:443 0"},
		{"an ICMPv6 echo", six(58, 128, 0, 0, 0), "58 [2001:db8::1]:0 128"},
		{"behind two extensions", six(0, join(extensionOf(60, 0, 0), extensionOf(17, 2, 0), ports)...), "udp [2001:db8::1]:443 0"},
		{"behind an authentication header", six(51, join([]byte{6, 4}, make([]byte, 22), ports)...), "tcp [2001:db8::1]:443 0"},
		{"a first fragment of IPv6", six(44, join([]byte{17, 0, 0, 1, 0, 0, 0, 0}, ports)...), "udp [2001:db8::1]:443 0"},
		{"a later fragment of IPv6", six(44, join([]byte{17, 0, 0, 9, 0, 0, 0, 0}, ports)...), "udp [2001:db8::1]:0 0"},
		{"an extension that is cut", six(0, 6, 9, 0, 0, 0, 0, 0, 0), "tcp [2001:db8::1]:0 0"},
		{"half an extension", six(43, 6, 0, 0), "43 [2001:db8::1]:0 0"},
		{"a header of IPv6 that is cut", six(6)[:39], ""},
		{"neither", []byte{0x55, 0, 0, 0}, ""},
		{"nothing", nil, ""},
	} {
		p, ok := parse(message("why ", c.payload))
		got := ""
		if ok {
			got = fmt.Sprintf("%s %s %d", policy.Protocol(p.Protocol), p.Destination, p.Type)
			if (p.SourcePort == 40000) != (p.Destination.Port() == 443) {
				t.Errorf("%s: from port %d", c.what, p.SourcePort)
			}
			if from := map[bool]string{true: "10.1.0.5", false: "fd00:1::5"}[p.Source.Is4()]; p.Source.String() != from || p.Prefix != "why " {
				t.Errorf("%s: from %s, %q", c.what, p.Source, p.Prefix)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(message("x", four(6, 0, 0, ports...)))
	f.Add(message("x", six(0, join(extensionOf(60, 0, 0), extensionOf(17, 2, 0), ports)...)))
	f.Add(message("x", six(51, 6, 200)))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := parse(b)
		if !ok {
			return
		}
		if !p.Source.IsValid() || p.Source.Is4() != p.Destination.Addr().Is4() {
			t.Errorf("from %s to %s", p.Source, p.Destination)
		}
		ported := map[uint8]bool{unix.IPPROTO_TCP: true, unix.IPPROTO_UDP: true, unix.IPPROTO_SCTP: true, unix.IPPROTO_UDPLITE: true, unix.IPPROTO_DCCP: true}
		if p.Destination.Port() != 0 && !ported[p.Protocol] || p.Type != 0 && p.Protocol != unix.IPPROTO_ICMP && p.Protocol != unix.IPPROTO_ICMPV6 {
			t.Errorf("%+v", p)
		}
	})
}

// TestOwner: the owner of the socket is read where the kernel sends both numbers.
func TestOwner(t *testing.T) {
	t.Parallel()
	number := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	whole := message("p", four(6, 0, 0, ports...))
	owned := nfattr.Append(nfattr.Append(append([]byte(nil), whole...), attrUID, number(1000)), attrGID, number(100))
	for name, c := range map[string]struct {
		attrs []byte
		want  *Owner
	}{
		"forwarded": {whole, nil}, "of a process": {owned, &Owner{1000, 100}},
		"without a group": {nfattr.Append(append([]byte(nil), whole...), attrUID, number(1000)), nil},
		"short":           {nfattr.Append(nfattr.Append(append([]byte(nil), whole...), attrUID, []byte{1}), attrGID, number(100)), nil},
	} {
		p, ok := parse(c.attrs)
		if !ok || (p.Owner == nil) != (c.want == nil) || c.want != nil && *p.Owner != *c.want {
			t.Errorf("%s: %+v", name, p.Owner)
		}
	}
}
