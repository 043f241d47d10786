package proxy

import (
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
)

func TestIdentify(t *testing.T) {
	l := newLab(t, nil)
	l.s.source = plainSource
	local := netip.MustParseAddr("169.254.20.53")
	l.s.SetCluster(Cluster{Nodes: addrsOf("192.0.2.250", "10.1.0.3"), Peers: addrsOf("192.0.2.251")})
	for _, tt := range []struct {
		from  string
		pod   string // of the view
		known bool
		node  bool
	}{
		{from: "10.1.0.2", pod: "web", known: true},
		{from: "::ffff:10.1.0.2", pod: "web", known: true}, // as a dual-stack socket tells it
		{from: "2001:db8:1::2", pod: "web", known: true},
		{from: "2001:db8:1::2%eth0", pod: "web", known: true},
		{from: "10.1.0.6", known: true},
		{from: "127.0.0.1", known: true, node: true},
		{from: "::1", known: true, node: true},
		{from: "169.254.20.53", known: true, node: true},
		{from: "192.0.2.250", known: true, node: true},
		{from: "10.1.0.3", pod: "quiet", known: true}, // though it is the node's as well, below
		{from: "169.254.20.54"},
		{from: "192.0.2.251"}, // another node is an unknown source
		{from: "10.1.0.200"},
		{from: "2001:db8:1::3"},
		{from: "fe80::1%eth0"},
	} {
		a := l.s.identify(netip.MustParseAddr(tt.from), local)
		pod := ""
		if a.view != nil {
			pod = a.view.Pod.Name
		}
		if pod != tt.pod || a.known != tt.known || a.node != tt.node || a.addr.Zone() != "" || a.addr.Is4In6() {
			t.Errorf("%s: %+v, pod %q", tt.from, a, pod)
		}
	}
}

func TestIdentifyBeforeAnySnapshot(t *testing.T) {
	l := newLab(t, nil)
	l.s.snapshot.Store(nil)
	if a := l.s.identify(netip.MustParseAddr("10.1.0.2"), netip.Addr{}); a.known || a.view != nil {
		t.Errorf("known: %+v", a)
	}
	if a := l.s.identify(netip.MustParseAddr("127.0.0.1"), netip.Addr{}); !a.node {
		t.Errorf("the node is not: %+v", a)
	}
}

// TestConflictingAddressIsGrantedNothing: two pods claim one address, so it is unknown
// which of them asks.
func TestConflictingAddressIsGrantedNothing(t *testing.T) {
	l := newLab(t, labTable)
	in := compile.Input{Policies: policiesOf(t, labPolicies), Pods: []policy.Pod{labPod("web", "10.1.0.30"), labPod("quiet", "10.1.0.30")}}
	l.s.Publish(compile.New().Compile(in))
	l.ask("10.1.0.30", "www.example.org", dns.TypeA)
	if len(l.granter.Grants()) != 0 {
		t.Errorf("granted %v", l.granter.Grants())
	}
}
