package scenarios

import (
	"net"
	"net/netip"
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
func (s *stage) sctp(pod string, sport uint16, to string, want bool) {
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
	before := s.world.SawFlow(flow)
	if _, err := c.WriteTo(lab.SCTPInit(sport, at.Port(), nil), &net.IPAddr{IP: at.Addr().AsSlice()}); err != nil {
		s.t.Fatal(err)
	}
	s.settle()
	if n := s.world.SawFlow(flow) - before; (n > 0) != want {
		s.t.Errorf("%d packets of SCTP from pod %s to %s arrived", n, pod, to)
	}
}

// TestPortsOfEveryProtocol: a port without a protocol is one of TCP, UDP and SCTP; a NetworkPolicy names
// SCTP.
func TestPortsOfEveryProtocol(t *testing.T) {
	t.Parallel()
	eachBackend(t, lab.Routed, everyProtocolOpens)
}

func everyProtocolOpens(t *testing.T, kind nodeKind) {
	s := newStageOf(t, kind)
	s.zone.add("www.example.org. 60 IN A 198.51.100.1\nwww.example.org. 60 IN AAAA 2001:db8::1\ntwo.example.org. 60 IN A 198.51.100.2\nhigh.example.org. 60 IN A 198.51.100.3")
	s.world = s.sniff(s.World, "eth0")
	s.startClient(policy("ports", everyProtocol))
	s.resolve("a", "www.example.org", dns.TypeA)
	s.resolve("a", "www.example.org", dns.TypeAAAA)
	s.resolve("a", "two.example.org", dns.TypeA)
	s.resolve("a", "high.example.org", dns.TypeA)
	for _, host := range []string{"198.51.100.1", "[2001:db8::1]"} {
		s.expect("a", "tcp", host+":443", lab.Answered)
		s.expect("a", "udp", host+":443", lab.Answered)
		s.sctp("a", 5003, host+":443", true)
		s.expect("a", "tcp", host+":80", lab.Silent)
		s.expect("a", "udp", host+":80", lab.Silent)
		s.sctp("a", 5001, host+":80", false)
	}
	for _, port := range []string{":80", ":8080"} {
		s.expect("a", "tcp", "198.51.100.2"+port, lab.Answered)
		s.expect("a", "udp", "198.51.100.2"+port, lab.Answered)
	}
	s.sctp("a", 5004, "198.51.100.2:80", true)
	s.expect("a", "udp", "198.51.100.2:443", lab.Answered)
	s.expect("a", "tcp", "198.51.100.2:443", lab.Silent)
	s.sctp("a", 5002, "198.51.100.2:443", false)
	s.expect("a", "tcp", "198.51.100.3:8080", lab.Answered)
	s.expect("a", "udp", "198.51.100.3:8080", lab.Answered)
	s.expect("a", "tcp", "198.51.100.3:443", lab.Silent)
	s.sctp("a", 5005, "198.51.100.3:36412", true)
	// By a NetworkPolicy.
	s.apply(map[string]string{"np.yaml": egress("np", "\n- to: [{ipBlock: {cidr: 198.51.100.9/32}}, {ipBlock: {cidr: \"2001:db8::9/128\"}}]\n  ports: [{protocol: SCTP, port: 5000}]")})
	for i, host := range []string{"198.51.100.9", "[2001:db8::9]"} {
		s.sctp("a", uint16(5010+i), host+":5000", true)
		s.sctp("a", uint16(5020+i), host+":5001", false)
		s.expect("a", "tcp", host+":5000", lab.Silent)
	}
}
