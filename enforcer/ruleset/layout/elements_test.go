package layout

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/testkit/diff"
)

// in returns the keys of a set's elements.
func in(m nft.Elements, set string) [][]string {
	var out [][]string
	for _, text := range m[set] {
		out = append(out, strings.Split(text, " . "))
	}
	slices.SortFunc(out, slices.Compare)
	return out
}

func TestClaimsOfAddresses(t *testing.T) {
	t.Parallel()
	a, b, c := netip.MustParseAddr("2001:db8:1::5"), netip.MustParseAddr("10.1.0.5"), netip.MustParseAddr("::5")
	s := State{
		PortHomes: []Home{{"port1", a}, {"port1", b}, {"port2", c}},
		Homes:     []Home{{"veth3", netip.MustParseAddr("2001:db8:1::7")}},
		Gateways:  []netip.Addr{netip.MustParseAddr("fe80::1"), netip.MustParseAddr("169.254.1.1")},
		Pods:      [][]netip.Addr{{a, b}, {c, netip.MustParseAddr("2001:db8:1::6")}},
	}
	inet, bridge := s.inet(s.objects(objects{})), s.bridge()
	tests := []struct {
		of   nft.Elements
		set  string
		want [][]string
	}{
		{bridge, claimSet, [][]string{{`"port1"`, "0x20010db8000100000000000000000005"}, {`"port2"`, "0x5"}}},
		{bridge, gatewaySet, [][]string{{"fe80::1"}}},
		{bridge, gatewayNumbers, [][]string{{"0xfe800000000000000000000000000001"}}},
		{inet, "own4", [][]string{{"10.1.0.5", "10.1.0.5"}}},
		{inet, "own6", [][]string{
			{"2001:db8:1::5", "2001:db8:1::5"}, {"2001:db8:1::6", "2001:db8:1::6"}, {"2001:db8:1::6", "::5"}, {"::5", "2001:db8:1::6"}, {"::5", "::5"},
		}},
	}
	for _, test := range tests {
		diff.Error(t, test.want, in(test.of, test.set), test.set)
	}
}
