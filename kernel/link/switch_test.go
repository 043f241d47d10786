package link_test

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestSharedInterfaces: a route to a whole network that leads to an interface which is no
// bridge of the kernel tells of another switch; a pod's own route, a bridge and a default
// route do not.
func TestSharedInterfaces(t *testing.T) {
	t.Parallel()
	k := kernel(t)
	bridged(t)
	ip(t, "tuntap add tap0 mode tap")
	ip(t, "link set tap0 up")
	ip(t, "addr add 10.2.0.1/24 dev tap0")
	ip(t, "addr add 2001:db8:2::1/64 dev tap0 nodad")
	ip(t, "link add veth5 type veth peer name peer5")
	ip(t, "link set veth5 up")
	ip(t, "route add 10.3.0.5/32 dev veth5")
	ip(t, "route add default dev veth5")
	_, got, err := k.Homes(addrs("10.1.0.5", "10.2.0.1", "10.2.0.5", "10.3.0.5", "10.4.0.5", "2001:db8:1::5", "2001:db8:2::5"))
	fatal.If(t, err)
	if want := map[netip.Addr]string{addr("10.2.0.5"): "tap0", addr("2001:db8:2::5"): "tap0"}; !maps.Equal(got, want) {
		t.Errorf("shared %v, want %v", got, want)
	}
	for _, a := range []string{"10.2.0.5", "2001:db8:2::5"} {
		if h, known := homes(t, k, a); known {
			t.Errorf("home of %s: %v", a, h)
		}
	}
}
