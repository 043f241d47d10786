package scenarios

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

const allowWWW = `
podSelector: {matchLabels: {app: client}}
egress:
- matches: [{name: www.example.org}]
  ports: [{protocol: TCP, port: 80}]
`

// TestFirstSlice: on each network, with each of the two iptables and with nft alone.
func TestFirstSlice(t *testing.T) {
	t.Parallel()
	for _, network := range networks {
		t.Run(string(network), func(t *testing.T) {
			t.Parallel()
			eachBackend(t, network, firstSlice)
		})
	}
}

func firstSlice(t *testing.T, kind nodeKind) {
	s := newStageOf(t, kind)
	s.zone.add(`
		www.example.org. 60 IN A 198.51.100.1
		www.example.org. 60 IN AAAA 2001:db8:1::1
		other.example.org. 60 IN A 198.51.100.2`)
	s.start(map[string]string{
		"a.yaml":      s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
		"b.yaml":      s.Pod("b").Manifest("shop", "b", nil),
		"policy.yaml": policy("allow-www", allowWWW),
	})
	if got := s.resolve("a", "www.example.org", dns.TypeA); len(got) != 1 {
		t.Fatalf("www.example.org: %v", got)
	}
	s.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
	s.expect("a", "tcp", "198.51.100.1:81", lab.Refused)
	s.resolve("a", "www.example.org", dns.TypeAAAA)
	s.expect("a", "tcp", "[2001:db8:1::1]:80", lab.Answered)
	s.expect("a", "tcp", "[2001:db8:1::1]:81", lab.Refused)
	s.resolve("a", "other.example.org", dns.TypeA)
	s.expect("a", "tcp", "198.51.100.2:80", lab.Refused)
	s.expect("a", "udp", "198.51.100.2:80", lab.Refused)
	s.expect("b", "tcp", "198.51.100.2:80", lab.Answered)
	s.secondNetHolds("198.51.100.2:80")
}

// claims says again and again on a card that addresses are there, until stop is called.
func claims(t *testing.T, card *lab.Card, node net.HardwareAddr, gateway [2]netip.Addr, addrs ...netip.Addr) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			for _, a := range addrs {
				say := arpClaims(a, gateway[0], node)
				if a.Is6() {
					say = ndClaims(a, a, gateway[1], node)
				}
				for _, c := range say {
					if err := card.Send(card.Frame(c.to, c.typ, c.body(card.HW, lab.Token(0)))); err != nil {
						t.Error(err)
						return
					}
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	return sync.OnceFunc(func() { cancel(); all.Wait() })
}

// TestAHomeTakenAtBirth has an unselected pod answer for the addresses of a future pod,
// before that pod's interface exists. It gets none of its grants, and the pod works once
// it exists.
func TestAHomeTakenAtBirth(t *testing.T) {
	staged(t, onBridged, newForgeStage, func(t *testing.T, f *forgeStage) {
		coming := lab.Pod{Host: &lab.Host{Name: "late"}, Addr4: netip.MustParseAddr("10.1.0.9"), Addr6: netip.MustParseAddr("fd00:1::9")}
		addrs := []netip.Addr{coming.Addr4, coming.Addr6}
		gateway := [2]netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00:1::1")}
		node, err := f.Node.Hardware("br0")
		fatal.If(t, err)
		free := f.cards["free"]
		stop := claims(t, free, node, gateway, addrs...)
		defer stop()
		f.apply(map[string]string{
			"free.yaml": f.Pod("free").Manifest("shop", "free", nil),
			"late.yaml": coming.Manifest("shop", "late", map[string]string{"app": "client"}),
		})
		// The neighbour queries in the pod's name, and uses the address.
		open := map[bool]netip.Addr{false: netip.MustParseAddr("198.51.100.3"), true: netip.MustParseAddr("2001:db8:1::3")}
		forges := func(when string) {
			t.Helper()
			var all []way
			for range 5 {
				for _, a := range addrs {
					resolver, qtype := lab.Resolver4, dns.TypeA
					if a.Is6() {
						resolver, qtype = lab.Resolver6, dns.TypeAAAA
					}
					query, err := new(dns.Msg).SetQuestion("unused.example.org.", qtype).Pack()
					fatal.If(t, err)
					w := f.way(a, open[a.Is6()])
					ask := lab.UDP(netip.AddrPortFrom(a, w.own()), netip.AddrPortFrom(resolver, 53), query)
					f.send("free", way{a, resolver, w.no}, way{a, resolver, w.no}.packet(17, ask))
					time.Sleep(50 * time.Millisecond)
					f.send("free", w, w.packet(17, w.udp()))
					all = append(all, w)
				}
			}
			f.settle()
			for _, w := range all {
				if f.world.SawToken(w.token()) > 0 {
					t.Errorf("%s: the neighbour's packet from %s to %s arrived", when, w.src, w.dst)
				}
			}
		}
		forges("before the pod is there")
		f.addPod("late", 9)
		stop()
		forges("when it is there")
		// A network plugin's announcement makes the node look for the addresses again.
		for _, a := range addrs {
			fatal.If(t, f.Node.IP("neigh", "flush", "to", a.String()))
		}
		fatal.If(t, f.Ready())
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			if got := f.resolve("late", "unused.example.org", qtype); len(got) != 1 {
				t.Errorf("the pod resolves %v", got)
			}
		}
		f.expect("late", "tcp", "198.51.100.3:80", lab.Answered)
		f.expect("late", "tcp", "[2001:db8:1::3]:80", lab.Answered)
		forges("when the pod has its grants")
	})
}
