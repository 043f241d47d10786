package policy

import (
	"net/netip"
	"strings"
	"testing"
)

func TestCheckPodAddr(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "", "192.0.2.1": "", "100.64.0.1": "", "223.255.255.255": "", "2001:db8::1": "", "fd00::1": "", "::ffff:10.0.0.1": "",
		"0.0.0.0": "no host's", "0.1.2.3": "no host's", "::": "no host's", "255.255.255.255": "no host's", "240.0.0.1": "no host's",
		"127.0.0.1": "loopback", "127.9.9.9": "loopback", "::1": "loopback", "::ffff:127.0.0.1": "loopback",
		"224.0.0.1": "multicast", "239.1.1.1": "multicast", "ff02::1": "multicast",
		"169.254.1.1": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "zone", "2001:db8::1%eth0": "zone",
	} {
		switch err := CheckPodAddr(netip.MustParseAddr(text)); {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), text)):
			t.Errorf("%s: the error does not say %q: %v", text, want, err)
		}
	}
	if err := CheckPodAddr(netip.Addr{}); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("no address: %v", err)
	}
}
