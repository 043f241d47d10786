package cluster

import (
	"net/netip"
	"slices"
	"testing"
)

// Every range has to be the cluster's own: an address that two of them have
// would be routed to one alone.
func TestRangesAreApart(t *testing.T) {
	ranges := slices.Concat(PodRanges, ServiceRanges, []netip.Prefix{
		netip.MustParsePrefix("10.77.0.0/24"), netip.MustParsePrefix("fd00:77::/64"),
	})
	for _, r := range worldRanges {
		ranges = append(ranges, netip.MustParsePrefix(r))
	}
	for i, a := range ranges {
		for _, b := range ranges[i+1:] {
			if a.Overlaps(b) {
				t.Errorf("%s and %s overlap", a, b)
			}
		}
	}
	for _, n := range nodeSites {
		if !PodRanges[0].Contains(n.pods4.Addr()) || !PodRanges[1].Contains(n.pods6.Addr()) {
			t.Errorf("the pods of %s are outside %v", n.name, PodRanges)
		}
	}
	if !ServiceRanges[0].Contains(DNS4) || !ServiceRanges[1].Contains(DNS6) {
		t.Errorf("the cluster's DNS is outside %v", ServiceRanges)
	}
}

func TestRoutes(t *testing.T) {
	for _, c := range []struct {
		of   site
		want []string
	}{
		{nodeSites[0], []string{
			"route add 10.244.2.0/24 via 10.77.0.12", "-6 route add fd00:244:0:2::/64 via fd00:77::12",
			"route add default via 10.77.0.1", "-6 route add default via fd00:77::1",
		}},
		{worldSite, []string{"route add 10.244.1.0/24 via 10.77.0.11", "route add local 198.51.100.0/24 dev lo", "-6 route add local 2001:db8::/32 dev lo"}},
	} {
		got := routes(c.of)
		for _, line := range c.want {
			if !slices.Contains(got, line) {
				t.Errorf("%s lacks: %s", c.of.name, line)
			}
		}
		if c.of.name == worldSite.name && slices.ContainsFunc(got, func(l string) bool { return l == "route add default via 10.77.0.1" }) {
			t.Error("the world has a default route: something could leave")
		}
	}
}
