package intercept

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/linktest"
)

func TestActivateAppliesTheNetwork(t *testing.T) {
	endpoint, resolver := addr("169.254.20.53"), addr("192.0.2.53")
	links := linktest.NewFake(addr("169.254.20.64"), addr("169.254.20.65"))
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

// TestStartAgain: a second start takes away no address of the first one, and those of an agent that is gone.
func TestStartAgain(t *testing.T) {
	gone := addr("169.254.20.64")
	links := linktest.NewFake(gone)
	i := New(Config{Links: links, Resolvers: addrs("192.0.2.53 2001:db8::53")})
	first, err := i.Start(nil)
	fatal.If(t, err)
	again, err := i.Start(append(slices.Clone(first), gone))
	fatal.If(t, err)
	if there, err := links.Addrs(); err != nil || !slices.Equal(again, first) || !slices.Equal(there, first) {
		t.Errorf("serves on %v, then on %v, and the node has %v, %v", first, again, there, err)
	}
}

// TestAddressesOfAnotherAgent are not taken while it may serve there, also where it took them from the node.
func TestAddressesOfAnotherAgent(t *testing.T) {
	theirs := addrs("169.254.20.64")
	i := New(Config{Links: linktest.NewFake(), Resolvers: addrs("192.0.2.53"), Taken: func() []netip.Addr { return theirs }})
	if own, err := i.Start(nil); err != nil || !slices.Equal(own, addrs("169.254.20.65")) {
		t.Errorf("served on %v, %v", own, err)
	}
}

// TestServingAddressesAreGivenBack: there are as many networks as there are, each with other resolvers, for pods and for
// the node. What is in force stays.
func TestServingAddressesAreGivenBack(t *testing.T) {
	links := linktest.NewFake()
	i := New(Config{Links: links, Resolvers: addrs("192.0.2.53")})
	_, err := i.Start(nil)
	fatal.If(t, err)
	resolver := addr("198.51.100.0")
	for n := range 1000 {
		resolver = resolver.Next()
		all, err := i.SetNetwork(Network{Resolvers: []netip.Addr{resolver}, NodeDNS: n%2 == 0, HostResolvers: []netip.Addr{resolver}})
		fatal.If(t, err)
		serving := i.Activate()
		if len(all) > 5 || len(serving) != 2+(n+1)%2 {
			t.Fatalf("network %d: assigned %v, served on %v", n, all, serving)
		}
		i.GiveBack()
		if there, err := links.Addrs(); err != nil || !slices.Equal(there, slices.SortedFunc(slices.Values(serving), netip.Addr.Compare)) {
			t.Fatalf("network %d: served on %v, the node has %v, %v", n, serving, there, err)
		}
	}
}

// TestNodesQueriesBeforeTheGuard: a serving address of the node's own queries is guarded from the write to the kernel on
// until it is given back.
func TestNodesQueriesBeforeTheGuard(t *testing.T) {
	i, resolver := New(Config{Links: linktest.NewFake()}), addr("198.51.100.53")
	all, err := i.SetNetwork(Network{NodeDNS: true, HostResolvers: []netip.Addr{resolver}})
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	takes := func(when string, want bool) {
		t.Helper()
		if got, guarded := i.HostResolver(all[0]); guarded != want || got != resolver {
			t.Errorf("%s: of %s, guarded %v", when, got, guarded)
		}
	}
	takes("assigned", false)
	i.Activate()
	takes("before the first write", false)
	i.NodeServing() // for a write that may fail
	takes("before the first write", false)
	i.Guard(i.NodeServing())
	takes("in the kernel", true)
	_, err = i.SetNetwork(Network{})
	fatal.If(t, err)
	i.Activate()
	i.Guard(i.NodeServing())
	takes("before it is drained", true)
	i.GiveBack()
	if got, guarded := i.HostResolver(all[0]); got.IsValid() || guarded {
		t.Errorf("given back: of %s, guarded %v", got, guarded)
	}
}
