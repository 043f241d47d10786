package cluster

import (
	"fmt"
	"net/netip"
	"syscall"
)

// site is a host's place on the fabric: addresses of its own, and those of the
// pods behind it if it is a node.
type site struct {
	name         string
	addr4, addr6 netip.Addr
	pods4, pods6 netip.Prefix
}

// The cluster's addresses. The world has, besides its own, every documentation
// address and a private network, see worldRanges; its DNS server is Resolver4 and Resolver6.
var (
	worldSite   = site{name: "world", addr4: netip.MustParseAddr("10.77.0.1"), addr6: netip.MustParseAddr("fd00:77::1")}
	controlSite = site{name: "control", addr4: netip.MustParseAddr("10.77.0.10"), addr6: netip.MustParseAddr("fd00:77::10")}
	nodeSites   = []site{
		{
			name: "node-a", addr4: netip.MustParseAddr("10.77.0.11"), addr6: netip.MustParseAddr("fd00:77::11"),
			pods4: netip.MustParsePrefix("10.244.1.0/24"), pods6: netip.MustParsePrefix("fd00:244:0:1::/64"),
		},
		{
			name: "node-b", addr4: netip.MustParseAddr("10.77.0.12"), addr6: netip.MustParseAddr("fd00:77::12"),
			pods4: netip.MustParsePrefix("10.244.2.0/24"), pods6: netip.MustParsePrefix("fd00:244:0:2::/64"),
		},
	}

	// PodRanges are those of all nodes together, ServiceRanges those of Services.
	PodRanges     = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/48")}
	ServiceRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}

	// DNS4 and DNS6 are the addresses of the Service kube-dns.
	DNS4 = netip.MustParseAddr("10.96.0.10")
	DNS6 = netip.MustParseAddr("fd00:96::a")

	// Resolver4 and Resolver6 are the world's DNS server.
	Resolver4 = netip.MustParseAddr("192.0.2.53")
	Resolver6 = netip.MustParseAddr("2001:db8::53")

	worldRanges = []string{
		"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15", "169.254.169.254/32", "2001:db8::/32", "10.0.0.0/24",
	}
)

// plug joins a host to the fabric's switch and gives it its addresses.
func plug(fabric, h *Host, s site) error {
	port := "p-" + s.name
	for _, step := range []struct {
		on   *Host
		line string
	}{
		{fabric, fmt.Sprintf("link add %s type veth peer name eth0 netns %d", port, h.pid)},
		{fabric, "link set " + port + " master br0 up"},
		{h, "link set eth0 up"},
		{h, "addr add " + s.addr4.String() + "/24 dev eth0"},
		{h, "-6 addr add " + s.addr6.String() + "/64 dev eth0 nodad"},
	} {
		if err := step.on.ip(step.line); err != nil {
			return err
		}
	}
	return nil
}

// routes are what a site has to know: where the pods of the nodes are, and that
// everything else is in the world.
func routes(of site) []string {
	var lines []string
	for _, n := range nodeSites {
		if n.name != of.name {
			lines = append(lines, "route add "+n.pods4.String()+" via "+n.addr4.String(), "-6 route add "+n.pods6.String()+" via "+n.addr6.String())
		}
	}
	if of.name != worldSite.name {
		return append(lines, "route add default via "+worldSite.addr4.String(), "-6 route add default via "+worldSite.addr6.String())
	}
	for _, r := range worldRanges {
		if netip.MustParsePrefix(r).Addr().Is6() {
			lines = append(lines, "-6 route add local "+r+" dev lo")
		} else {
			lines = append(lines, "route add local "+r+" dev lo")
		}
	}
	return lines
}

// detached keeps a program alive, and out of the reach of Ctrl-C, when the one
// that started it ends.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
