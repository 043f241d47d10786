package corefile

import (
	"net/netip"
	"strings"
	"testing"
)

func TestRebindRangesAreHostAddresses(t *testing.T) {
	for r, want := range map[string]string{
		"126.0.0.0/7":        "127.0.0.0/8 is loopback",
		"64.0.0.0/2":         "127.0.0.0/8 is loopback",
		"127.1.0.0/16":       "127.0.0.0/8 is loopback",
		"0.0.0.0/1":          "loopback",
		"0.0.0.0/0":          "loopback",
		"192.0.0.0/2":        "224.0.0.0/4 is multicast",
		"240.0.0.0/8":        "240.0.0.0/4 is reserved",
		"255.255.255.255":    "240.0.0.0/4 is reserved",
		"0.1.2.3":            "0.0.0.0/8 is unspecified",
		"::/8":               "::1/128 is loopback",
		"8000::/1":           "ff00::/8 is multicast",
		"fe00::/7":           "ff00::/8 is multicast",
		"::/0":               "loopback",
		"10.0.0.0/8":         "",
		"169.254.169.254":    "",
		"fe80::/10":          "",
		"2001:db8::/32":      "",
		"64:ff9b::/96":       "",
		"128.0.0.0/2":        "",
		"223.255.255.255/32": "",
	} {
		c, err := Parse("Corefile", ". {\nforward . 192.0.2.1\nrebind allow a.test "+r+"\n}\n")
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", r, err)
		case want == "" && len(c.Rebind) != 1:
			t.Errorf("%s: %v", r, c.Rebind)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "write a range of hosts")):
			t.Errorf("%s: error %v, want %q", r, err, want)
		}
	}
}

func TestNoHost(t *testing.T) {
	for a, want := range map[string]string{
		"127.255.0.1": "loopback", "::1": "loopback", "0.0.0.0": "unspecified", "::": "unspecified",
		"224.0.0.1": "multicast", "ff02::1": "multicast", "255.255.255.255": "reserved",
		"126.255.255.255": "", "128.0.0.0": "", "::2": "", "fe80::1": "", "169.254.169.254": "",
	} {
		if got := NoHost(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s: %q, want %q", a, got, want)
		}
	}
}
