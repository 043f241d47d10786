package wire

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go4.org/netipx"
	"sigs.k8s.io/knftables"
)

// TestEncodeIsTheInverseOfDecode for words of every type.
func TestEncodeIsTheInverseOfDecode(t *testing.T) {
	for _, test := range []struct{ types, words []string }{
		{[]string{"ipv4_addr"}, []string{"192.0.2.1"}},
		{[]string{"ifname", "ipv6_addr"}, []string{`"veth0"`, "2001:db8::1"}},
		{[]string{"ipv4_addr", "inet_proto", "inet_service"}, []string{"192.0.2.1", "udp", "65535"}},
		{[]string{"iifname", "@th,64,128"}, []string{`"a-port-of-15-ch"`, "0xfe800000000000000000000000000001"}},
	} {
		b, left, ok := encode(test.words, test.types)
		_, length := KeyForm(test.types)
		if !ok || len(left) > 0 || len(b)%RegisterWord != 0 || length > uint32(len(b)) {
			t.Fatalf("%q: % x", test.words, b)
		}
		if got, left := Decode(b, append(slices.Clone(test.types), "verdict")); !slices.Equal(got, test.words) || len(left) != 1 {
			t.Errorf("%q, want %q", got, test.words)
		}
	}
}

// TestElementsOfNoSet: a transaction with an element that is none of its set is not sent.
func TestElementsOfNoSet(t *testing.T) {
	for _, test := range []struct{ typ, word string }{
		{"ipv4_addr", "2001:db8::1"}, {"ipv6_addr", "192.0.2.1"}, {"ipv4_addr", "example"}, {"inet_proto", "icmp"}, {"inet_service", "65536"},
		{"ifname", `"an-interface-of-17"`}, {"@th,64,128", "-1"}, {"@th,64,8", "0x100"}, {"mark", "1"},
	} {
		b := New(knftables.InetFamily, "wire", func(string) ([]string, bool) { return []string{test.typ}, false })
		b.Add(&knftables.Element{Set: "set", Key: []string{test.word}})
		if _, err := b.Commit(nil); err == nil || !strings.HasPrefix(err.Error(), "set: ") {
			t.Errorf("%s %s: %v", test.typ, test.word, err)
		}
	}
}

// TestRangesOfBounds in any order.
func TestRangesOfBounds(t *testing.T) {
	addr := netip.MustParseAddr
	bounds := []Bound{{addr("198.51.100.0"), false}, {addr("192.0.2.8"), true}, {addr("192.0.2.8"), false}, {addr("192.0.2.0"), false}, {addr("192.0.2.16"), true}}
	want := []netipx.IPRange{netipx.MustParseIPRange("192.0.2.0-192.0.2.7"), netipx.MustParseIPRange("192.0.2.8-192.0.2.15"), netipx.MustParseIPRange("198.51.100.0-255.255.255.255")}
	if got := Ranges(bounds); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for text, want := range map[string]string{"192.0.2.0/29": "192.0.2.0-192.0.2.7", "192.0.2.1": "192.0.2.1-192.0.2.1", "192.0.2.1-192.0.2.4": "192.0.2.1-192.0.2.4", "::/0": "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"} {
		if got, ok := ParseRange(text); !ok || got.String() != want {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
}
