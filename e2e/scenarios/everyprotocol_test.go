package scenarios

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// everyProtocol has ports without a protocol: one, two beside a port of UDP, and a range. It
// drops, because the kernel limits the rate of refusals by ICMP, and has patterns, whose names
// no agent queries by itself.
const everyProtocol = `podSelector: {matchLabels: {app: client}}
denied: Drop
egress:
- matches: [{pattern: "www*.example.org"}]
  ports: [{port: 443}]
- matches: [{pattern: "two*.example.org"}]
  ports: [{port: 80}, {port: 8080}, {protocol: UDP, port: 443}]
- matches: [{pattern: "high*.example.org"}]
  ports: [{port: 1024, endPort: 65535}]`

// sctp asserts whether what opens an SCTP association arrives at a port of the world.
func (s *stage) sctp(sniffer *lab.Sniffer, pod string, sport uint16, to string, want bool) {
	s.t.Helper()
	at := netip.MustParseAddrPort(to)
	network := "ip4:132"
	if at.Addr().Is6() {
		network = "ip6:132"
	}
	c, err := s.Pod(pod).ListenPacket(network, "")
	fatal.If(s.t, err)
	defer c.Close()
	from := s.Pod(pod).Addr4
	if at.Addr().Is6() {
		from = s.Pod(pod).Addr6
	}
	flow := lab.Arrival{From: from, To: at.Addr(), Protocol: unix.IPPROTO_SCTP, Port: at.Port()}
	before := sniffer.SawFlow(flow)
	if _, err := c.WriteTo(lab.SCTPInit(sport, at.Port(), nil), &net.IPAddr{IP: at.Addr().AsSlice()}); err != nil {
		s.t.Fatal(err)
	}
	s.settle(sniffer)
	if n := sniffer.SawFlow(flow) - before; (n > 0) != want {
		s.t.Errorf("%d packets of SCTP from pod %s to %s arrived", n, pod, to)
	}
}

// TestPortsOfEveryProtocol: a port without a protocol is one of TCP, UDP and SCTP; with
// "ports tcp" one of TCP alone. From one agent to the next, either way of ending the first,
// what was open on TCP stays open without another query, and its connections go on.
func TestPortsOfEveryProtocol(t *testing.T) {
	t.Parallel()
	eachBackend(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		for how, next := range map[string]func(*stage) error{
			"upgrade": func(s *stage) error { return s.agent.Upgrade() },
			"killed": func(s *stage) error {
				if err := s.agent.Stop(syscall.SIGKILL); err != nil {
					return err
				}
				return s.agent.Start()
			},
		} {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				everyProtocolAfter(t, kind, next)
			})
		}
	})
}

func everyProtocolAfter(t *testing.T, kind nodeKind, next func(*stage) error) {
	s := newStageOf(t, kind)
	path := filepath.Join(s.agent.Dir, "Corefile")
	all, err := os.ReadFile(path)
	fatal.If(t, err)
	fatal.If(t, os.WriteFile(path, []byte(strings.Replace(string(all), ". {\n", ". {\n    ports tcp\n", 1)), 0o644))
	s.zone.add("www.example.org. 60 IN A 198.51.100.1\nwww.example.org. 60 IN AAAA 2001:db8::1\ntwo.example.org. 60 IN A 198.51.100.2\nhigh.example.org. 60 IN A 198.51.100.3")
	sniffer, err := s.World.Sniff("eth0")
	fatal.If(t, err)
	t.Cleanup(sniffer.Close)
	s.startClient(policy("ports", everyProtocol))
	s.resolve("a", "www.example.org", dns.TypeA)
	s.resolve("a", "www.example.org", dns.TypeAAAA)
	s.resolve("a", "two.example.org", dns.TypeA)
	s.resolve("a", "high.example.org", dns.TypeA)
	kept := s.line("a", "tcp", netip.MustParseAddr("198.51.100.3"))
	common := func() {
		t.Helper()
		for _, host := range []string{"198.51.100.1", "[2001:db8::1]"} {
			s.expect("a", "tcp", host+":443", lab.Answered)
			s.expect("a", "tcp", host+":80", lab.Silent)
			s.expect("a", "udp", host+":80", lab.Silent)
			s.sctp(sniffer, "a", 5001, host+":80", false)
		}
		s.expect("a", "tcp", "198.51.100.2:80", lab.Answered)
		s.expect("a", "tcp", "198.51.100.2:8080", lab.Answered)
		s.expect("a", "udp", "198.51.100.2:443", lab.Answered)
		s.expect("a", "tcp", "198.51.100.2:443", lab.Silent)
		s.expect("a", "tcp", "198.51.100.3:8080", lab.Answered)
		s.expect("a", "tcp", "198.51.100.3:443", lab.Silent)
		s.sctp(sniffer, "a", 5002, "198.51.100.2:443", false)
	}
	further := func(want lab.Outcome) {
		t.Helper()
		for _, host := range []string{"198.51.100.1", "[2001:db8::1]"} {
			s.expect("a", "udp", host+":443", want)
			s.sctp(sniffer, "a", 5003, host+":443", want == lab.Answered)
		}
		s.expect("a", "udp", "198.51.100.2:80", want)
		s.expect("a", "udp", "198.51.100.2:8080", want)
		s.expect("a", "udp", "198.51.100.3:8080", want)
		s.sctp(sniffer, "a", 5004, "198.51.100.2:80", want == lab.Answered)
		s.sctp(sniffer, "a", 5005, "198.51.100.3:36412", want == lab.Answered)
	}
	common()
	further(lab.Silent)
	s.goesOn("with ports tcp", kept)

	fatal.If(t, os.WriteFile(path, all, 0o644))
	fatal.If(t, next(s))
	common()
	further(lab.Answered)
	s.goesOn("with the next agent", kept)
}
