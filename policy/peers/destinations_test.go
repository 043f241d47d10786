package peers

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
)

// TestNetworks: the union of blocks without their exceptions, as the fewest networks.
func TestNetworks(t *testing.T) {
	for name, test := range map[string]struct {
		of   string // a network, and with each - an exception from it
		most int
		want string
		made int
	}{
		"bits twice, inside":             {"192.0.2.64/26 192.0.2.0/24 192.0.2.0/24", 9, "192.0.2.0/24", 1},
		"halves":                         {"192.0.2.128/25 192.0.2.0/25", 9, "192.0.2.0/24", 1},
		"neighbours, not halves":         {"192.0.2.64/26 192.0.2.128/26", 9, "192.0.2.64/26,192.0.2.128/26", 2},
		"both families":                  {"128.0.0.0/1 0.0.0.0/1 8000::/1 ::/1", 9, "0.0.0.0/0,::/0", 2},
		"families do not touch":          {"255.255.255.255/32 ::/128", 9, "255.255.255.255/32,::/128", 2},
		"exceptions that overlap":        {"192.0.2.0/24-192.0.2.0/25-192.0.2.64/26", 9, "192.0.2.128/25", 1},
		"exception of another's network": {"192.0.2.0/24-192.0.2.0/25 192.0.2.0/26", 9, "192.0.2.0/26,192.0.2.128/25", 2},
		"the ends of a family":           {"0.0.0.0/0-0.0.0.0/1-255.255.255.255/32 ffff::/16-ffff::/17", 3, "128.0.0.0/2,192.0.0.0/3,224.0.0.0/4", 32},
		"too many":                       {"192.0.2.0/32 192.0.2.2/32 192.0.2.4/31", 2, "192.0.2.0/32,192.0.2.2/32", 3},
		"too many in a range":            {"192.0.2.0/29-192.0.2.7/32", 2, "192.0.2.0/30,192.0.2.4/31", 3},
	} {
		var d Destinations
		for _, block := range strings.Fields(test.of) {
			texts := strings.Split(block, "-")
			var holes []netip.Prefix
			for _, hole := range texts[1:] {
				holes = append(holes, netip.MustParsePrefix(hole))
			}
			d.AddNetwork(netip.MustParsePrefix(texts[0]), holes)
		}
		made, last := d.Normalize(test.most)
		if got := d.networksText(); got != test.want || made != test.made || d.count != min(made, test.most) {
			t.Errorf("%s: %s, %d made, %d kept; want %s, %d", name, got, made, d.count, test.want, test.made)
		}
		if over := made > test.most; over != last.IsValid() || over && !strings.HasSuffix(test.want, last.String()) {
			t.Errorf("%s: the last is %v", name, last)
		}
	}
}

func TestSetOfNetworksContains(t *testing.T) {
	set := &policy.PeerSet{Peer: policy.Peer{Kind: policy.PeerNetworks}, Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/25"), netip.MustParsePrefix("10.0.0.192/27"), netip.MustParsePrefix("2001:db8::/64")}}
	got := map[string]bool{}
	for _, a := range []string{"9.255.255.255", "10.0.0.0", "10.0.0.127", "10.0.0.128", "10.0.0.192", "10.0.0.200", "10.0.0.224", "::1", "2001:db8::", "2001:db8::9", "2001:db8:0:1::"} {
		got[a] = set.Contains(netip.MustParseAddr(a), policy.TCP, 1)
	}
	diff.Error(t, map[string]bool{"9.255.255.255": false, "10.0.0.0": true, "10.0.0.127": true, "10.0.0.128": false, "10.0.0.192": true, "10.0.0.200": true,
		"10.0.0.224": false, "::1": false, "2001:db8::": true, "2001:db8::9": true, "2001:db8:0:1::": false}, got)
}
