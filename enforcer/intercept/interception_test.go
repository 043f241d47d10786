package intercept

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/namegate/namegate/kernel/link"
)

func TestActivateAppliesTheNetwork(t *testing.T) {
	endpoint, resolver := addr("169.254.20.53"), addr("192.0.2.53")
	links := link.NewFake(addr("169.254.20.64"), addr("169.254.20.65"))
	i := New(Config{Links: links, Resolvers: []netip.Addr{endpoint}, Endpoint: []netip.Addr{endpoint}})
	first, err := i.Start(addrs("169.254.20.64"))
	if err != nil || !slices.Equal(first, addrs("169.254.20.64")) {
		t.Errorf("served on %v, %v", first, err)
	}
	if i.Dialled(false) != endpoint || len(i.Fallback()) > 0 {
		t.Errorf("the endpoint alone: %s is dialled, without an agent %v answer", i.Dialled(false), i.Fallback())
	}
	all, err := i.SetNetwork(Network{Resolvers: []netip.Addr{resolver}})
	if err != nil || !slices.Equal(all, addrs("169.254.20.64 169.254.20.66")) {
		t.Errorf("with a resolver served on %v, %v", all, err)
	}
	if dialled, serving := i.Lookup(resolver); dialled || serving || len(i.Serving()) != 1 {
		t.Error("in force before Activate")
	}
	i.Activate()
	if !maps.Equal(i.Serving(), map[netip.Addr]netip.Addr{endpoint: all[0], resolver: all[1]}) {
		t.Errorf("in force are %v", i.Serving())
	}
	if i.Dialled(false) != resolver || i.Dialled(true).IsValid() || !slices.Equal(i.Fallback(), []netip.AddrPort{netip.AddrPortFrom(resolver, 53)}) {
		t.Errorf("%s and %s are dialled, without an agent %v answer", i.Dialled(false), i.Dialled(true), i.Fallback())
	}
	i.Stop()
	left, err := links.Addrs()
	if err != nil || slices.ContainsFunc(left, func(a netip.Addr) bool { return slices.Contains(all, a) }) || !slices.Contains(left, endpoint) {
		t.Errorf("after the agent the node has %v, %v", left, err)
	}
}
