package scenarios

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// catchAlls is a shell that adds an element for every other key to each set and map of our
// tables that the kernel does not fill by itself; the verdict maps accept everything then.
// The program nft cannot add one to sets of ranges.
const catchAlls = `for t in namegate namegate-net; do nft -t list table inet $t 2>/dev/null | awk -v t=$t '
	$1 == "set" || $1 == "map" { what = $1; name = $2; type = ""; skip = name ~ /^(alive|named)/ }
	$1 == "type" { type = $0; sub(/^[ \t]*type /, "", type) }
	$1 == "flags" && /interval|dynamic/ { skip = 1 }
	$1 == "}" && type != "" && !skip {
		value = ""
		if (what == "map") {
			split(type, parts, " : ")
			value = " : accept"
			if (parts[2] == "ipv4_addr") value = " : 203.0.113.1"
			if (parts[2] == "ipv6_addr") value = " : 2001:db8:7::1"
			if (parts[2] == "ipv4_addr . inet_service") value = " : 203.0.113.1 . 53"
			if (parts[2] == "ipv6_addr . inet_service") value = " : 2001:db8:7::1 . 53"
		}
		print "add element inet " t " " name " { *" value " }"
	}
	$1 == "}" { type = "" }'
done | nft -f -`

const acceptsAndDenies = `
apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: ordered}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  egress:
  - action: Deny
    matches: [{name: denied.example.org}]
  - action: Accept
    matches: [{name: accepted.example.net}]
    ports: [{protocol: TCP, port: 80}]
  dns: {denied: Resolve}
`

// TestCatchAllElements: elements that another program adds for every key to our sets and maps
// are removed, while the agent runs and by the next one. The status answers with such an element
// too.
func TestCatchAllElements(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		s.zone.add(`
			www.example.org. 600 IN A 198.51.100.1
			denied.example.org. 600 IN A 198.51.100.3
			accepted.example.net. 600 IN A 198.51.100.4`)
		s.startClient(policy("www", strings.Replace(allowWWW, "{name: www.example.org}", "{name: www.example.org}, {name: denied.example.org}", 1)) + "---" + acceptsAndDenies)
		for _, name := range []string{"www.example.org", "denied.example.org", "accepted.example.net"} {
			s.resolve("a", name, dns.TypeA)
		}
		held := func() int {
			return strings.Count(s.prints("nft list ruleset"), "*")
		}
		for _, agent := range []string{"runs", "starts"} {
			if agent == "starts" {
				fatal.If(t, s.agent.Stop(syscall.SIGKILL))
			}
			run(t, s.Node, "sh", "-c", catchAlls)
			if agent == "starts" {
				if held() == 0 {
					t.Fatal("no element was added: this proves nothing")
				}
				fatal.If(t, s.agent.Start())
			}
			began := time.Now()
			for held() > 0 {
				if time.Since(began) > comeback {
					t.Fatalf("while the agent %s: elements are left:\n%s", agent, s.prints("nft list ruleset"))
				}
				time.Sleep(50 * time.Millisecond)
			}
			s.eventually("a", "198.51.100.1:80", lab.Answered)
			s.eventually("a", "198.51.100.2:80", lab.Refused)
			s.eventually("a", "198.51.100.3:80", lab.Refused)
			s.eventually("a", "198.51.100.4:80", lab.Answered)
		}
		// The kernel fills this set, and ends what is in it after minutes.
		run(t, s.Node, "nft", "add", "element", "inet", "namegate", "bypassing4", "{ * }")
		s.status()
	})
}

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

const deniedAnswer = `
apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: denied}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  egress:
  - action: Deny
    matches: [{name: denied.test}]
  dns: {denied: Resolve}
`

// TestDeniedAddressesThatAreKnown: a pod that knows an address from before a policy that denies
// its name, and resolves it, cannot reach it, though it asks no more: a pod that no policy selected, and one that
// another policy did. A name of another rule that has no answer delays nothing.
func TestDeniedAddressesThatAreKnown(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		s.zone.add(`
			denied.test. 600 IN A 198.51.100.5
			denied.test. 600 IN AAAA 2001:db8:1::5
			www.test. 600 IN A 198.51.100.6`)
		s.zone.say("dead.test", func(*dns.Msg) *dns.Msg { return nil })
		s.start(map[string]string{
			"a.yaml":     s.Pod("a").Manifest("shop", "a", nil),
			"b.yaml":     s.Pod("b").Manifest("shop", "b", map[string]string{"app": "client"}),
			"other.yaml": strings.NewReplacer("{name: denied}", "{name: other}", "denied.test", "www.test", "namespaces: {}", "pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: client}}}").Replace(deniedAnswer),
		})
		for what, rule := range map[string]string{"all ports": "action: Deny", "a port": "action: Deny\n    ports: [{port: 80}]"} {
			known := []string{"198.51.100.5:80", "[2001:db8:1::5]:80"}
			for _, pod := range []string{"a", "b"} {
				for _, to := range known {
					s.eventually(pod, to, lab.Answered)
				}
			}
			asked := time.Now()
			s.apply(map[string]string{"denied.yaml": strings.NewReplacer("action: Deny", rule, "[{name: denied.test}]", "[{name: denied.test}, {name: dead.test}]").Replace(deniedAnswer)})
			for _, pod := range []string{"a", "b"} {
				for _, to := range known {
					s.eventually(pod, to, lab.Refused)
				}
			}
			t.Logf("%s: denied after %v", what, time.Since(asked).Round(time.Millisecond))
			s.expect("b", "tcp", "198.51.100.6:80", lab.Refused)
			s.expect("a", "tcp", "198.51.100.6:80", lab.Answered)
			s.apply(map[string]string{"denied.yaml": ""})
		}
	})
}

// TestRefusedNamesCloseNothing: a name of a deny-list whose owner answers with the address of
// another closes that address to no pod: the agent does not ask for the name, a pod that asks gets
// no answer, and an accepted name whose alias it is brings no address.
func TestRefusedNamesCloseNothing(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		s.zone.add(`
			denied.test. 600 IN A 198.51.100.6
			led.test. 600 IN CNAME denied.test.
			shown.test. 600 IN A 198.51.100.5`)
		s.start(map[string]string{
			"a.yaml":     s.Pod("a").Manifest("shop", "a", nil),
			"b.yaml":     s.Pod("b").Manifest("shop", "b", nil),
			"shown.yaml": strings.NewReplacer("{name: denied}", "{name: shown}", "priority: 1", "priority: 2", "denied.test", "shown.test").Replace(deniedAnswer),
			"led.yaml":   strings.NewReplacer("{name: denied}", "{name: led}", "priority: 1", "priority: 3", "denied.test", "led.test", "Deny", "Accept").Replace(deniedAnswer),
		})
		for denied, rcode := range map[string]int{"NXDomain": dns.RcodeNameError, "Refuse": dns.RcodeRefused} {
			s.apply(map[string]string{"denied.yaml": strings.Replace(deniedAnswer, "Resolve", denied, 1)})
			for _, pod := range []string{"a", "b"} {
				s.eventually(pod, "198.51.100.5:80", lab.Refused) // the exact names are resolved
				for _, name := range []string{"denied.test", "led.test"} {
					if r, err := s.ask(pod, "udp", name, dns.TypeA); err != nil || r.Rcode != rcode {
						t.Errorf("%s, pod %s asks for %s: %v %v", denied, pod, name, r, err)
					}
				}
				s.expect(pod, "tcp", "198.51.100.6:80", lab.Answered)
			}
			s.apply(map[string]string{"denied.yaml": ""})
		}
		if asked := s.outside.Asked(); slices.Contains(asked, "denied.test. A") {
			t.Errorf("the agent asked for a refused name: %v", asked)
		}
	})
}
