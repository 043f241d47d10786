package nft

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/knftables"
)

// in returns the keys of a set's elements.
func in(m elements, f knftables.Family, set string) [][]string {
	var out [][]string
	for _, e := range m {
		if e.Family == f && e.Set == set {
			out = append(out, e.Key)
		}
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
	tests := []struct {
		family knftables.Family
		set    string
		want   [][]string
	}{
		{knftables.BridgeFamily, claimSet, [][]string{{`"port1"`, "0x20010db8000100000000000000000005"}, {`"port2"`, "0x5"}}},
		{knftables.BridgeFamily, gatewaySet, [][]string{{"fe80::1"}}},
		{knftables.BridgeFamily, gatewayNumbers, [][]string{{"0xfe800000000000000000000000000001"}}},
		{knftables.InetFamily, "own4", [][]string{{"10.1.0.5", "10.1.0.5"}}},
		{knftables.InetFamily, "own6", [][]string{
			{"2001:db8:1::5", "2001:db8:1::5"}, {"2001:db8:1::6", "2001:db8:1::6"}, {"2001:db8:1::6", "::5"}, {"::5", "2001:db8:1::6"}, {"::5", "::5"},
		}},
	}
	got := s.elements(s.tierObjects(tierObjects{}))
	for _, test := range tests {
		if diff := cmp.Diff(test.want, in(got, test.family, test.set)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.set, diff)
		}
	}
}
