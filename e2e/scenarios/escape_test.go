package scenarios

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// guardedStage has two selected pods: a may reach www.example.org on TCP port 80
// and has resolved it, b may reach nothing; and a sniffer in the world.
func guardedStage(t *testing.T, kind nodeKind) *stage {
	s := newStageOf(t, kind)
	s.zone.add(`
		www.example.org. 60 IN A 198.51.100.1
		www.example.org. 60 IN AAAA 2001:db8:1::1
		unused.example.org. 60 IN A 198.51.100.3
		unused.example.org. 60 IN AAAA 2001:db8:1::3`)
	s.start(map[string]string{
		"a.yaml":   s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
		"b.yaml":   s.Pod("b").Manifest("shop", "b", map[string]string{"app": "closed"}),
		"www.yaml": policy("allow-www", allowWWW),
		"unused.yaml": policy("allow-unused", `
podSelector: {matchLabels: {app: client}}
egress:
- matches: [{name: unused.example.org}]`),
		"no.yaml": policy("allow-nothing", "podSelector: {matchLabels: {app: closed}}"),
	})
	s.resolve("a", "www.example.org", dns.TypeA)
	s.resolve("a", "www.example.org", dns.TypeAAAA)
	s.resolve("a", "unused.example.org", dns.TypeA)
	s.resolve("a", "unused.example.org", dns.TypeAAAA)
	s.holds("before anything happens")
	s.world = s.sniff(s.World, "eth0")
	return s
}

// holds asserts that a denied connection stays denied, whether by an error or silently.
func (s *stage) holds(when string) {
	s.t.Helper()
	for _, probe := range [][3]string{
		{"a", "tcp", "198.51.100.1:81"}, {"a", "udp", "198.51.100.1:80"}, {"a", "tcp", "198.51.100.2:80"},
		{"a", "icmp", "198.51.100.1:0"}, {"a", "tcp", "[2001:db8:1::1]:81"}, {"a", "icmp", "[2001:db8:1::1]:0"},
		{"b", "tcp", "198.51.100.1:80"}, {"b", "udp", "198.51.100.9:443"}, {"b", "tcp", "[2001:db8:1::1]:80"},
	} {
		if got := s.Pod(probe[0]).Probe(probe[1], netip.MustParseAddrPort(probe[2])); got == lab.Answered {
			s.t.Errorf("%s: pod %s to %s %s: answered", when, probe[0], probe[1], probe[2])
		}
	}
}

// forges lets pod b send with addresses that are not its own and asserts that
// nothing arrived: neither at a destination of its own for each packet (no is its
// number), nor where pod a may go and never went.
func (s *stage) forges(when string, no *int) {
	s.t.Helper()
	s.forgesFrom([]string{"10.1.0.99", "203.0.113.5", "fd00:1::99", "2001:db8:5::5"}, when, no)
	s.forgesPod(when, no)
}

// forgesPod is forges with the addresses of another pod alone.
func (s *stage) forgesPod(when string, no *int) {
	s.t.Helper()
	s.forgesFrom([]string{s.Pod("a").Addr4.String(), s.Pod("a").Addr6.String()}, when, no)
}

func (s *stage) forgesFrom(sources []string, when string, no *int) {
	s.t.Helper()
	for _, from := range sources {
		for _, network := range []string{"tcp", "udp"} {
			*no++
			to, allowed := fmt.Sprintf("198.51.100.%d", 100+*no), "198.51.100.3"
			if netip.MustParseAddr(from).Is6() {
				to, allowed = fmt.Sprintf("2001:db8:2::%x", *no), "2001:db8:1::3"
			}
			for _, dst := range []string{to, allowed} {
				if err := s.Pod("b").Forge(network, from, netip.AddrPortFrom(netip.MustParseAddr(dst), 80)); err != nil {
					s.t.Errorf("%s: forge %s from %s: %v", when, network, from, err)
				}
			}
			s.settle()
			diff.Equal(s.t, 0, s.world.Saw(netip.MustParseAddr(to)), when, "forged", network, "packets from", from, "that arrived")
			diff.Equal(s.t, 0, s.world.Saw(netip.MustParseAddr(allowed)), when, "forged", network, "packets from", from, "that arrived at the neighbour's address")
		}
	}
}

func TestLinkLocalReachesNothing(t *testing.T) {
	staged(t, onEach, guardedStage, func(t *testing.T, s *stage) {
		s.addPod("free", 7)
		fatal.If(t, s.Ready())
		for host, h := range map[string]*lab.Host{"node": s.Node, "neighbour": s.Pod("b").Host} {
			l, err := h.Listen("[::]:8088")
			fatal.If(t, err)
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					fmt.Fprintln(c, "reached", host)
					c.Close()
				}
			}()
		}
		targets := []string{"10.1.0.1:8088", "192.168.77.1:8088", "[fd00:77::1]:8088", s.Pod("b").Addr4.String() + ":8088", "[" + s.Pod("b").Addr6.String() + "]:8088"}
		for _, h := range []*lab.Host{s.Node, s.Pod("b").Host} {
			for _, a := range linkLocals(run(t, h, "ip", "-6", "-o", "addr", "show", "scope", "link")) {
				targets = append(targets, "["+a+"%ZONE]:8088")
			}
		}
		if len(targets) < 7 {
			t.Fatalf("found no link-local addresses: %v", targets)
		}
		// An unselected pod reaches the hosts on its link: the targets are right.
		var reached atomic.Int32
		var all sync.WaitGroup
		for _, pod := range []string{"a", "free"} {
			patience := lab.Patience
			if pod == "free" { // which reaches all but one of them
				patience = 5 * lab.Patience
			}
			zone, err := s.Pod(pod).Zone("eth0")
			fatal.If(t, err)
			for _, target := range targets {
				all.Go(func() {
					c, err := s.Pod(pod).Dial("tcp", strings.Replace(target, "ZONE", zone, 1), patience)
					if err != nil {
						return
					}
					said, _ := io.ReadAll(c)
					c.Close()
					if reached.Add(1); pod == "a" {
						t.Errorf("pod a connected to %s: %q", target, said)
					}
				})
			}
		}
		all.Wait()
		if n := reached.Load(); n < 6 {
			t.Errorf("the unselected pod reached %d of %v: the test proves little", n, targets)
		}
	})
}

func TestReusedAddressInheritsNothing(t *testing.T) {
	staged(t, onRouted, guardedStage, func(t *testing.T, s *stage) {
		s.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
		fatal.If(t, s.RemovePod("a"))
		s.addPod("c", 5)
		fatal.If(t, s.Ready())
		s.apply(map[string]string{
			"a.yaml": "",
			"c.yaml": s.Pod("c").Manifest("shop", "c", map[string]string{"app": "heir"}),
			"heir.yaml": policy("heir", `
podSelector: {matchLabels: {app: heir}}
egress:
- matches: [{pattern: "*.example.org"}]
  ports: [{protocol: TCP, port: 80}]`),
		})
		s.expect("c", "tcp", "198.51.100.1:80", lab.Refused)
		s.resolve("c", "www.example.org", dns.TypeA)
		s.expect("c", "tcp", "198.51.100.1:80", lab.Answered)
	})
}
