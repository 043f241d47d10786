package intercept

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/linktest"
)

// TestRelays: the relay has an address of each family from SetNetwork on until it is given back or stopped, beside those of
// resolvers.
func TestRelays(t *testing.T) {
	links := linktest.NewFake()
	i := New(Config{Links: links, Resolvers: addrs("192.0.2.53")})
	serving, err := i.Start(nil)
	fatal.If(t, err)
	are := func(when string, wantAssigned, wantInForce, wantThere int) {
		t.Helper()
		assigned, inForce := i.Relays()
		there, err := links.Addrs()
		if err != nil || len(assigned) != wantAssigned || len(inForce) != wantInForce || len(there) != wantThere {
			t.Errorf("%s: assigned %v, in force %v, the node has %v, %v", when, assigned, inForce, there, err)
		}
		for _, at := range slices.Concat(assigned, inForce) {
			if at.Port() != 9955 || slices.Contains(serving, at.Addr()) || !IsRelay(at) {
				t.Errorf("%s: a relay at %s", when, at)
			}
		}
	}
	are("at first", 0, 0, 1)
	set := func(n Network) {
		t.Helper()
		if all, err := i.SetNetwork(n); err != nil || !slices.Equal(all, serving) {
			t.Errorf("DNS is served on %v, %v", all, err)
		}
	}
	set(Network{RelayPort: 9955})
	are("assigned", 2, 0, 3)
	i.Activate()
	are("in force", 2, 2, 3)
	if again, err := i.Start(nil); err != nil || !slices.Equal(again, serving) {
		t.Errorf("started again: %v, %v", again, err)
	}
	are("started again", 2, 2, 3)
	set(Network{})
	are("not needed", 0, 2, 3)
	i.Activate()
	are("not in force", 0, 0, 3)
	i.GiveBack()
	are("given back", 0, 0, 1)
	set(Network{RelayPort: 9955})
	i.Activate()
	i.Stop()
	are("without DNS", 2, 2, 2)
	i.StopRelays()
	are("stopped", 2, 2, 0)
	if IsRelay(netip.AddrPortFrom(serving[0], 53)) || IsRelay(netip.MustParseAddrPort("198.51.100.1:9955")) {
		t.Error("DNS or an address of another is a relay")
	}
}
