package rebind

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestAddressAfterPrefix(t *testing.T) {
	// The table of RFC 6052 §2.4: 192.0.2.33 behind prefixes of each length.
	for _, tt := range []struct {
		addr string
		bits int
	}{
		{"2001:db8:c000:221::", 32},
		{"2001:db8:1c0:2:21::", 40},
		{"2001:db8:122:c000:2:2100::", 48},
		{"2001:db8:122:3c0:0:221::", 56},
		{"2001:db8:122:344:c0:2:2100::", 64},
		{"2001:db8:122:344::192.0.2.33", 96},
	} {
		a := netip.MustParseAddr(tt.addr)
		if got := after(a.As16(), tt.bits); got.String() != "192.0.2.33" {
			t.Errorf("%s/%d holds %s", tt.addr, tt.bits, got)
		}
	}
}

func TestEmbeddedInTeredo(t *testing.T) {
	// The example of RFC 4380 §4 in shape: server 65.54.227.120, client 192.0.2.45.
	got := embedded(netip.MustParseAddr("2001:0:4136:e378:8000:63bf:3fff:fdd2"), nil)
	if len(got) != 2 || got[0].String() != "65.54.227.120" || got[1].String() != "192.0.2.45" {
		t.Errorf("embedded %v", got)
	}
	if got := embedded(netip.MustParseAddr("192.0.2.1"), nil); got != nil {
		t.Errorf("an IPv4 address embeds %v", got)
	}
}

func TestEmbedded(t *testing.T) {
	nat64 := parsed(t, worldConfig).NAT64
	for text, want := range map[string]string{
		"2001:db8::1":                "[]",
		"::192.0.2.1":                "[192.0.2.1]",
		"::ffff:0:192.0.2.1":         "[192.0.2.1]",
		"64:ff9b::192.0.2.1":         "[192.0.2.1]",
		"64:ff9b:0:0:1::192.0.2.1":   "[]",
		"2002:c000:201::":            "[192.0.2.1]",
		"2001:db8:64::192.0.2.1":     "[192.0.2.1]",
		"2001:db8:64:1::192.0.2.1":   "[]",
		"2001:0:c000:201::ffff:ffff": "[192.0.2.1 0.0.0.0]",
	} {
		if got := fmt.Sprint(embedded(mustAddr(text), nat64)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
