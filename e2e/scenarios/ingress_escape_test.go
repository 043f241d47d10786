package scenarios

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestIngressLostElements: where a rival empties a set, nothing new arrives.
func TestIngressLostElements(t *testing.T) {
	staged(t, onRouted, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{"np.yaml": ingress("np", fromGood), "bad.yaml": egressOf("bad", toWebOnly)}))
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		for _, set := range []string{"map inet namegate ingresschains", "set inet namegate ingress"} {
			for _, f := range []string{"4", "6"} {
				run(t, s.Node, "nft", strings.Fields("flush "+set+f)...)
			}
			for _, from := range []string{"bad", "farbad"} {
				s.reaches("after flush "+set, s.Pod(from).Host, "tcp", 8080, lab.Silent)
			}
		}
	})
}

// TestIngressLostRule: what got in while a rival had emptied sets of rules that deny is cut when these are there again.
func TestIngressLostRule(t *testing.T) {
	staged(t, onRouted, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{"cnp.yaml": `
apiVersion: policy.networking.k8s.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: first}
spec:
  tier: Admin
  priority: 1
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}
  ingress: [{action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: bad}}}}]}]
`}))
		others := s.linesToWeb("good")
		s.reaches("at first", s.Pod("bad").Host, "tcp", 8080, lab.Silent)
		fatal.If(t, s.agent.Signal(syscall.SIGSTOP))
		run(t, s.Node, "sh", "-c", eachNamed("set", "peers-", "nft flush set inet namegate $n"))
		lines := s.linesToWeb("bad")
		fatal.If(t, s.agent.Signal(syscall.SIGCONT))
		fatal.Await(t, "a repair", func() bool {
			return s.Pod("bad").Probe("tcp", netip.AddrPortFrom(s.Pod("web").Addr4, 8080)) == lab.Silent
		})
		s.podNext("after a repair", lines, others)
	})
}

// TestIngressForgedFrames: a bridge port of a subject gets frames to its own addresses alone.
func TestIngressForgedFrames(t *testing.T) {
	staged(t, onBridged, ingressStage, func(t *testing.T, s *peerStage) {
		s.start(s.manifests(map[string]string{
			"np.yaml":  ingress("np", fromGood),
			"bad.yaml": networkPolicy("open", "podSelector: {matchLabels: {app: bad}}\npolicyTypes: [Ingress]\ningress: [{}]"),
		}))
		good, web, bad := s.Pod("good"), s.pods["web"], s.Pod("bad")
		card, err := good.Card("eth0")
		fatal.If(t, err)
		defer card.Close()
		at, err := web.Hardware("eth0")
		fatal.If(t, err)
		to := map[string]netip.Addr{"another subject": bad.Addr4, "all hosts": netip.MustParseAddr("224.0.0.1"), "broadcast": netip.MustParseAddr("255.255.255.255"), "link-local": netip.MustParseAddr("fe80::1234")}
		tokens := map[string][]byte{}
		n := uint32(4000)
		for name, dst := range to {
			n++
			tokens[name] = lab.Token(n)
			src := good.Addr4
			if dst.Is6() {
				src = good.Addr6
			}
			p := lab.Packet{Src: src, Dst: dst, Proto: 17, Payload: lab.UDP(netip.AddrPortFrom(src, 7), netip.AddrPortFrom(dst, 8080), tokens[name])}
			fatal.If(t, card.SendIP(at, p.Bytes()))
		}
		// A pod that the agent does not know may send tags.
		unknown := s.addPod("unknown", 30)
		tagging, err := unknown.Card("eth0")
		fatal.If(t, err)
		defer tagging.Close()
		tokens["web with a priority tag"] = lab.Token(4999)
		p := lab.Packet{Src: unknown.Addr4, Dst: web.Addr4, Proto: 17, Payload: lab.UDP(netip.AddrPortFrom(unknown.Addr4, 7), netip.AddrPortFrom(web.Addr4, 8080), lab.Token(4999))}
		fatal.If(t, tagging.Send(tagging.Frame(at, 0x8100, append([]byte{0, 0, 8, 0}, p.Bytes()...))))
		router, all := netip.MustParseAddr("fe80::77"), netip.MustParseAddr("ff02::1")
		advert := append(append(make([]byte, 12), 253, 3), append(make([]byte, 6), lab.Token(4998)...)...)
		fatal.If(t, tagging.SendIP(at, lab.Packet{Src: router, Dst: all, Proto: 58, Hops: 255, Payload: lab.ICMP(router, all, 134, 0, advert)}.Bytes()))
		fatal.If(t, web.sniffer.SettleAt(web.Addr4, s.Node))
		if web.sniffer.SawToken(lab.Token(4998)) == 0 {
			t.Error("a router's advertisement did not arrive")
		}
		for name, token := range tokens {
			if web.sniffer.SawToken(token) != 0 {
				t.Errorf("a frame to %s arrived", name)
			}
		}
	})
}

// TestIngressOfResolver: rules for ingress of a pod that resolves names hold for its clients, with an agent and without.
func TestIngressOfResolver(t *testing.T) {
	staged(t, onRouted, ingressStage, func(t *testing.T, s *peerStage) {
		resolver := s.server("dns", 12, false, map[string]string{"app": "dns"}, 8080)
		served, err := resolver.ServeDNS(netip.AddrPortFrom(resolver.Addr4, 53), s.zone.answer)
		fatal.If(t, err)
		t.Cleanup(served.Close)
		for _, network := range []string{"tcp", "udp"} {
			s.services = append(s.services, lab.Service{Addr: lab.Resolver4, Protocol: network, Port: 53, To: []netip.AddrPort{netip.AddrPortFrom(resolver.Addr4, 53)}})
		}
		fatal.If(t, s.SetServices(s.services...))
		s.zone.add("www.example.org. 60 IN A 198.51.100.1")
		s.start(s.manifests(map[string]string{
			"np.yaml":   networkPolicy("dns", "podSelector: {matchLabels: {app: dns}}\npolicyTypes: [Ingress]\ningress: [{from: [{podSelector: {matchLabels: {app: good}}}], ports: [{port: 53}, {protocol: UDP, port: 53}]}]"),
			"good.yaml": allowNames("good", "good", "www"),
		}))
		answers := func(when, pod string, to netip.Addr, want bool) {
			t.Helper()
			for _, network := range []string{"udp", "tcp"} {
				ask := func(patience time.Duration) bool {
					r, err := s.Pod(pod).Ask(network, netip.AddrPortFrom(to, 53), "www.example.org", dns.TypeA, patience)
					return err == nil && len(r.Answer) == 1
				}
				if want {
					fatal.Await(t, when+": an answer for "+pod+" over "+network, func() bool { return ask(time.Second) })
				} else if ask(lab.Patience) {
					t.Errorf("%s: %s has an answer of %s over %s", when, pod, to, network)
				}
			}
		}
		asks := func(when string) {
			t.Helper()
			answers(when, "good", lab.Resolver4, true)
			answers(when, "bad", lab.Resolver4, false)
			answers(when, "bad", resolver.Addr4, false)
			answers(when, "farbad", resolver.Addr4, false)
			answers(when, "fargood", resolver.Addr4, true)
		}
		asks("with an agent")
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		asks("without an agent")
	})
}

// rivalMarks are a program that sets the bits of Namegate on first packets, and one that expects connections back.
const rivalMarks = `table inet rival {
	chain first {
		type filter hook prerouting priority -160;
		ct state new meta mark set meta mark | 0x60 ct mark set ct mark | 0x60
	}
}
` + expecting

// TestIngressEscapes: what other programs do, and what peers make up, lets nothing in.
func TestIngressEscapes(t *testing.T) {
	staged(t, onRouted, ingressStage, func(t *testing.T, s *peerStage) {
		web, bad := s.pods["web"], s.Pod("bad")
		s.serve(bad.Host, 7000)
		s.serve(web.Host, 7070)
		s.start(s.manifests(map[string]string{"np.yaml": ingress("np", fromGood), "out.yaml": egressOf("web", "\n- {}"), "bad.yaml": egressOf("bad", toWebOnly)}))
		closed := func(when string) {
			t.Helper()
			s.reaches(when, s.Pod("good").Host, "tcp", 8080, lab.Answered)
			for _, from := range []string{"bad", "farbad"} {
				s.reaches(when, s.Pod(from).Host, "tcp", 8080, lab.Silent)
				s.reaches(when, s.Pod(from).Host, "udp", 8080, lab.Silent)
			}
		}
		fatal.If(t, s.Node.Pipe(rivalMarks, "nft", "-f", "-"))
		closed("with marks of another program")

		// A connection that a helper expects inherits the mark of its master, which is admitted.
		for _, pair := range [][2]netip.Addr{{bad.Addr4, web.Addr4}, {bad.Addr6, web.Addr6}} {
			master, err := web.Dial("tcp", netip.AddrPortFrom(pair[0], 7000).String(), lab.Limit)
			fatal.If(t, err)
			if got := bad.Probe("tcp", netip.AddrPortFrom(pair[1], 7070)); got == lab.Answered {
				t.Errorf("an expected connection to %s was answered", pair[1])
			}
			master.Close()
		}
		if counted := run(t, s.Node, "nft", "list", "chain", "inet", "helper", "expected"); strings.Contains(counted, "counter packets 0 ") {
			t.Errorf("no expected connection came: this proves nothing\n%s", counted)
		}

		card, err := bad.Card("eth0")
		fatal.If(t, err)
		defer card.Close()
		hop, err := s.Node.Hardware(bad.Iface)
		fatal.If(t, err)
		token := uint32(1 << 20)
		arrives := func(what string, want bool, packets ...[]byte) {
			t.Helper()
			token++
			for _, p := range packets {
				fatal.If(t, card.SendIP(hop, p))
			}
			fatal.If(t, web.sniffer.SettleAt(web.Addr4, s.Node))
			if got := web.sniffer.SawToken(lab.Token(token-1)) > 0; got != want {
				t.Errorf("%s arrives: %v", what, got)
			}
		}
		// Errors about connections that the node began, which need no admission, and about none.
		node := netip.MustParseAddrPort(dialFrom(t, s.Node, netip.AddrPortFrom(web.Addr4, 8080)))
		for _, port := range []uint16{node.Port(), 9} {
			quoted := lab.Packet{Src: web.Addr4, Dst: node.Addr(), Proto: 17, Payload: lab.UDP(netip.AddrPortFrom(web.Addr4, 8080), netip.AddrPortFrom(node.Addr(), port), lab.Token(token))}
			rest := append([]byte{0, 0, 0, 0}, quoted.Bytes()...)
			arrives("an ICMP error", false, lab.Packet{Src: bad.Addr4, Dst: web.Addr4, Proto: 1, Payload: lab.ICMP(bad.Addr4, web.Addr4, 3, 3, rest)}.Bytes())
		}
		datagram := lab.UDP(netip.AddrPortFrom(bad.Addr4, 7), netip.AddrPortFrom(web.Addr4, 8080), append(make([]byte, 40), lab.Token(token)...))
		fragment := func(offset, end int, more bool) []byte {
			return lab.Packet{Src: bad.Addr4, Dst: web.Addr4, Proto: 17, ID: 77, Offset: offset, More: more, Payload: datagram[offset:end]}.Bytes()
		}
		arrives("a datagram in fragments", false, fragment(0, 24, true), fragment(24, len(datagram), false))
		datagram = lab.UDP(netip.AddrPortFrom(bad.Addr4, 7), netip.AddrPortFrom(web.Addr4, 8080), append(make([]byte, 40), lab.Token(token)...))
		arrives("a last fragment alone", false, fragment(24, len(datagram), false))

		// A reply passes, and is a request once its connection is forgotten.
		for _, timeout := range []string{"udp_timeout", "udp_timeout_stream"} {
			run(t, s.Node, "sysctl", "-w", "net.netfilter.nf_conntrack_"+timeout+"=1")
		}
		udp := func() []byte {
			return lab.Packet{Src: bad.Addr4, Dst: web.Addr4, Proto: 17, Payload: lab.UDP(netip.AddrPortFrom(bad.Addr4, 8080), netip.AddrPortFrom(web.Addr4, 9999), lab.Token(token))}.Bytes()
		}
		out, err := web.DialFrom("udp", netip.AddrPortFrom(web.Addr4, 9999).String(), netip.AddrPortFrom(bad.Addr4, 8080).String(), lab.Limit)
		fatal.If(t, err)
		defer out.Close()
		if got := lab.Echo(out, lab.Limit); got != lab.Answered {
			t.Errorf("web's own connection: %s", got)
		}
		arrives("a reply", true, udp())
		from, to := netip.AddrPortFrom(web.Addr4, 9999), netip.AddrPortFrom(bad.Addr4, 8080)
		fatal.If(t, s.Node.Do(func() error {
			k, err := conntrack.Open()
			if err != nil {
				return err
			}
			defer k.Close()
			fatal.Await(t, "the end of the connection", func() bool {
				_, known, err := k.Lookup(17, from, to)
				return err == nil && !known
			})
			return nil
		}))
		arrives("a reply that is a request", false, udp())

		s.xtables("-t raw -A PREROUTING -j NOTRACK")
		closed("untracked")
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		for _, table := range []string{"bridge namegate", "inet namegate"} {
			run(t, s.Node, "nft", append([]string{"delete", "table"}, strings.Fields(table)...)...)
			for _, from := range []string{"bad", "farbad"} {
				s.reaches("untracked, without the table "+table, s.Pod(from).Host, "udp", 8080, lab.Silent)
			}
		}
	})
}

// dialFrom sends a datagram, and returns the address that it has.
func dialFrom(t *testing.T, from *lab.Host, to netip.AddrPort) string {
	t.Helper()
	c, err := from.Dial("udp", to.String(), lab.Limit)
	fatal.If(t, err)
	t.Cleanup(func() { c.Close() })
	if got := lab.Echo(c, lab.Limit); got != lab.Answered {
		t.Errorf("%s to %s: %s", from.Name, to, got)
	}
	return c.LocalAddr().String()
}
