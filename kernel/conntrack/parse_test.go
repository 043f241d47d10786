package conntrack

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink/nl"

	"github.com/namegate/namegate/kernel/nfattr"
)

// message renders the beginning of a connection as the kernel writes it.
func message(tuple, ip, src int, addr []byte) []byte {
	b := make([]byte, nfattr.HeaderLen)
	b, t := nfattr.Begin(b, tuple)
	b, i := nfattr.Begin(b, ip)
	b = nfattr.Append(b, src, addr)
	b = nfattr.Append(b, src+1, make([]byte, len(addr)))
	nfattr.End(b, i)
	nfattr.End(b, t)
	return append(b, make([]byte, 8)...)
}

// TestOffloadedIsRead: by the bit of the status, whatever the others are.
func TestOffloadedIsRead(t *testing.T) {
	t.Parallel()
	for status, want := range map[uint32]bool{0: false, seenReply | assured: false, offload | seenReply: true, offload | 1<<15: true} {
		if f, _ := parseFlow(nfattr.AppendUint32(nil, nl.CTA_STATUS, status)); f.Offloaded != want {
			t.Errorf("status %#x: offloaded %v", status, f.Offloaded)
		}
	}
}

func TestSource(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	tests := []struct {
		name string
		msg  []byte
		want netip.Addr
	}{
		{"IPv4", message(nl.CTA_TUPLE_ORIG, nl.CTA_TUPLE_IP, nl.CTA_IP_V4_SRC, v4.AsSlice()), v4},
		{"IPv6", message(nl.CTA_TUPLE_ORIG, nl.CTA_TUPLE_IP, nl.CTA_IP_V6_SRC, v6.AsSlice()), v6},
		{"the reply first", message(nl.CTA_TUPLE_REPLY, nl.CTA_TUPLE_IP, nl.CTA_IP_V4_SRC, v4.AsSlice()), netip.Addr{}},
		{"the ports first", message(nl.CTA_TUPLE_ORIG, nl.CTA_TUPLE_PROTO, nl.CTA_IP_V4_SRC, v4.AsSlice()), netip.Addr{}},
		{"the destination first", message(nl.CTA_TUPLE_ORIG, nl.CTA_TUPLE_IP, nl.CTA_IP_V4_DST, v4.AsSlice()), netip.Addr{}},
		{"an address of another length", message(nl.CTA_TUPLE_ORIG, nl.CTA_TUPLE_IP, nl.CTA_IP_V4_SRC, v6.AsSlice()), netip.Addr{}},
		{"nothing", nil, netip.Addr{}},
	}
	for _, test := range tests {
		got, ok := source(test.msg)
		if ok != test.want.IsValid() || ok && got != test.want {
			t.Errorf("%s: %v, %v", test.name, got, ok)
		}
		for i := range test.msg {
			if a, ok := source(test.msg[:i]); ok && a != test.want {
				t.Errorf("%s, the first %d bytes: %v", test.name, i, a)
			}
		}
	}
}
