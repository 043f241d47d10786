package denial

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/policytest"
)

// beside gives the audited pod a NetworkPolicy with rules, and a conntrack table with the
// actual destinations, "" for a connection that the kernel does not know.
func (w *world) beside(led map[string]string, rules ...*policy.Rule) (lookups *int) {
	lookups = new(int)
	peers := policy.Peer{Kind: policy.PeerPods, Key: "shop: app=db"}
	w.snap.PeerSets = []*policy.PeerSet{{Peer: peers, Addrs: []netip.Addr{netip.MustParseAddr("10.2.0.5")}}}
	v := w.snap.ViewOf(policytest.Ref("b"))
	v.NetworkPolicies = []string{"shop/out"}
	v.Rules.Namespace = slices.Concat(v.Rules.Namespace, rules)
	w.denials.o.Reached = func(proto uint8, src, dst netip.AddrPort) (netip.AddrPort, bool) {
		*lookups++
		diff.Equal(w.t, netip.AddrPortFrom(at["b"], 40000), src, "looked for what came from")
		to, known := led[dst.String()]
		if to == "" {
			return netip.AddrPort{}, false
		}
		return netip.MustParseAddrPort(to), known
	}
	return lookups
}

// begins is an audited packet with a port of its own, that is judged.
func (w *world) begins(proto, to string) {
	p := w.packet(nflog.PrefixAudited, "b", proto, to)
	if p.Destination.Port() != 0 {
		p.SourcePort = 40000
	}
	w.denials.take(p)
	w.pass(settle)
}

// TestNetworkPolicyIsNoWouldDeny: connections that NetworkPolicies allow an audited pod
// are no would-deny, by their actual destination.
func TestNetworkPolicyIsNoWouldDeny(t *testing.T) {
	db := policy.Peer{Kind: policy.PeerPods, Key: "shop: app=db"}
	pg, every := &policy.Rule{Peer: db, Ports: "tcp/5432"}, &policy.Rule{Ports: policy.AnyPort}
	for _, c := range []struct {
		what, proto, to string
		led             map[string]string
		rules           []*policy.Rule
		want            string // "" for none
	}{
		{what: "a peer by its own address", proto: "tcp", to: "10.2.0.5:5432", led: map[string]string{"10.2.0.5:5432": "10.2.0.5:5432"}, rules: []*policy.Rule{pg}},
		{what: "on another port", proto: "tcp", to: "10.2.0.5:80", led: map[string]string{"10.2.0.5:80": "10.2.0.5:80"}, rules: []*policy.Rule{pg}, want: "would-deny b tcp 10.2.0.5:80 address x1 []"},
		{what: "behind a Service", proto: "tcp", to: "10.96.0.5:80", led: map[string]string{"10.96.0.5:80": "10.2.0.5:5432"}, rules: []*policy.Rule{pg}},
		{what: "a Service that leads elsewhere", proto: "tcp", to: "10.96.0.5:5432", led: map[string]string{"10.96.0.5:5432": "10.2.0.6:5432"}, rules: []*policy.Rule{pg}, want: "would-deny b tcp 10.96.0.5:5432 address x1 []"},
		{what: "a peer that is led elsewhere", proto: "tcp", to: "10.2.0.5:5432", led: map[string]string{"10.2.0.5:5432": "10.2.0.6:5432"}, rules: []*policy.Rule{pg}, want: "would-deny b tcp 10.2.0.5:5432 address x1 []"},
		{what: "everywhere", proto: "udp", to: "198.51.100.1:53", led: map[string]string{"198.51.100.1:53": "198.51.100.1:53"}, rules: []*policy.Rule{every}},
		{what: "ICMP, of which no port is known", proto: "icmp", to: "198.51.100.1", rules: []*policy.Rule{every}},
		{what: "ICMP, and a rule with ports", proto: "icmp", to: "10.2.0.5", rules: []*policy.Rule{pg}, want: "would-deny b 1 10.2.0.5:0 address x1 []"},
		{what: "itself behind its Service", proto: "tcp", to: "10.96.0.6:80", led: map[string]string{"10.96.0.6:80": at["b"].String() + ":8080"}},
		{what: "no NetworkPolicy", proto: "tcp", to: "10.2.0.5:5432", led: map[string]string{"10.2.0.5:5432": "10.2.0.5:5432"}, want: "would-deny b tcp 10.2.0.5:5432 address x1 []"},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorld(t)
			w.beside(c.led, c.rules...)
			w.begins(c.proto, c.to)
			if c.want == "" {
				w.expect()
				return
			}
			w.expect(c.want)
		})
	}
}

// TestLateConntrackEntryIsFound: the kernel may list a connection late; then it is judged
// late. A connection that it never lists is judged by the dialled address.
func TestLateConntrackEntryIsFound(t *testing.T) {
	w := newWorld(t)
	led := map[string]string{}
	lookups := w.beside(led, &policy.Rule{Peer: policy.Peer{Kind: policy.PeerPods, Key: "shop: app=db"}, Ports: policy.AnyPort})
	w.begins("tcp", "10.96.0.5:80")
	w.pass(look)
	w.expect()
	led["10.96.0.5:80"] = "10.2.0.5:5432"
	w.pass(look)
	w.expect()
	if *lookups != 3 || w.all() != 0 {
		t.Errorf("%d looks, %d would be denied", *lookups, w.all())
	}
	*lookups = 0
	w.begins("tcp", "10.96.0.6:80")
	for range 10 {
		w.pass(look)
	}
	w.expect("would-deny b tcp 10.96.0.6:80 address x1 []")
	diff.Equal(t, maxLookups, *lookups, "looks for what the kernel does not know")
	*lookups = 0
	w.begins("tcp", "10.2.0.5:80") // a peer as it is dialled
	for range 10 {
		w.pass(look)
	}
	w.expect()
	if *lookups != maxLookups || len(w.denials.waiting) != 0 {
		t.Errorf("%d looks, %d wait", *lookups, len(w.denials.waiting))
	}
}

// TestReachedIsNotLookedForInVain: not for what names allow, not for pods that are
// enforced or unknown, and once at the end.
func TestReachedIsNotLookedForInVain(t *testing.T) {
	w := newWorld(t)
	lookups := w.beside(nil)
	w.told("b", "web.example.org", "198.51.100.1", 60, "")
	w.begins("tcp", "198.51.100.1:443")
	w.audited("a", "tcp", "198.51.100.1:443")
	w.audited("c", "tcp", "198.51.100.1:443")
	diff.Equal(t, 0, *lookups, "looks")
	w.begins("tcp", "198.51.100.9:443")
	w.denials.end()
	w.expect("would-deny b tcp 198.51.100.9:443 address x1 []")
	diff.Equal(t, 2, *lookups, "looks until the end")
}
