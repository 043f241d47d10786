package scenarios

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// flow is the content of the audit log's lines of denied connections: "VERDICT POD
// PROTOCOL DESTINATION REASON NAMES", and their number.
type flow struct {
	text  string
	count int
}

// flows returns the lines about flows so far.
func (s *stage) flows() []flow {
	s.t.Helper()
	lines, err := s.agent.AuditLines()
	fatal.If(s.t, err)
	var out []flow
	for _, l := range lines {
		if l["kind"] != "flow" {
			continue
		}
		dest := l["destination"].(map[string]any)
		text := fmt.Sprint(l["verdict"], " ", l["pod"].(map[string]any)["name"], " ", l["protocol"], " ", dest["address"])
		if port, ok := dest["port"]; ok {
			text += fmt.Sprint(" ", port)
		}
		text += fmt.Sprint(" ", l["reason"])
		names, _ := l["names"].([]any)
		for _, n := range names {
			n := n.(map[string]any)
			text += fmt.Sprint(" ", n["name"])
			if pod, ok := n["pod"]; ok {
				text += fmt.Sprint(" of ", pod)
			}
			if m, ok := n["match"].(map[string]any); ok {
				text += fmt.Sprint(" by ", m["policy"])
			}
		}
		out = append(out, flow{text, int(l["count"].(float64))})
	}
	return out
}

// awaitFlow waits for a line.
func (s *stage) awaitFlow(want string) {
	s.t.Helper()
	var got []flow
	for until := time.Now().Add(lab.Limit); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		got = s.flows()
		if slices.ContainsFunc(got, func(f flow) bool { return f.text == want }) {
			return
		}
	}
	s.t.Errorf("no line %q among %v", want, got)
}

// onlyFlows asserts which lines there are.
func (s *stage) onlyFlows(want ...string) {
	s.t.Helper()
	var got []string
	for _, f := range s.flows() {
		if !slices.Contains(got, f.text) {
			got = append(got, f.text)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("flows:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

const deniedZone = `
	www.example.org. 60 IN A 198.51.100.1
	www.example.org. 60 IN AAAA 2001:db8::1
	short.example.org. 1 IN A 198.51.100.3
	theirs.example.org. 60 IN A 198.51.100.4
	inside.example.org. 60 IN A 10.1.0.1
	other.test. 60 IN A 198.51.100.2
	other.test. 60 IN AAAA 2001:db8::2`

// translate makes the node lead an address elsewhere, as kube-proxy does.
func (s *stage) translate() {
	s.t.Helper()
	fatal.If(s.t, s.SetServices(lab.Service{Addr: netip.MustParseAddr("203.0.113.10"), Protocol: "tcp", Port: 443, To: []netip.AddrPort{addrPort("198.51.100.2:80")}}))
}

// TestDeniedIsExplained: each denied connection is a line with the dialled address, the
// names under which the pod knows it, and the reason, for Reject and Drop.
func TestDeniedIsExplained(t *testing.T) {
	t.Parallel()
	for _, denied := range []string{"Reject", "Drop"} {
		t.Run(denied, func(t *testing.T) {
			t.Parallel()
			eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) { explained(t, kind, denied) })
		})
	}
}

func explained(t *testing.T, kind nodeKind, denied string) {
	s := newStageOf(t, kind)
	s.zone.add(deniedZone)
	s.translate()
	s.start(map[string]string{
		"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
		"b.yaml": s.Pod("b").Manifest("shop", "b", map[string]string{"app": "client"}),
		"p.yaml": policy("allow", `podSelector: {matchLabels: {app: client}}
denied: `+denied+`
egress:
- matches: [{pattern: "*.example.org"}]
  ports: [{protocol: TCP, port: 80}]
ttl: {minSeconds: 1, maxSeconds: 60, graceSeconds: 1, inUse: Expire}`),
	})
	not := lab.Refused
	if denied == "Drop" {
		not = lab.Silent
	}
	s.resolve("a", "short.example.org", dns.TypeA)
	s.resolve("b", "theirs.example.org", dns.TypeA)
	for _, name := range []string{"www.example.org", "other.test"} {
		s.resolve("a", name, dns.TypeA)
		s.resolve("a", name, dns.TypeAAAA)
	}
	s.resolve("a", "inside.example.org", dns.TypeA)
	s.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
	s.expect("a", "tcp", "[2001:db8::1]:80", lab.Answered)
	want := map[string]string{}
	deny := func(protocol, to, line string) {
		t.Helper()
		outcome := not
		if protocol == "icmp" {
			outcome = lab.Silent
		}
		s.expect("a", protocol, to, outcome)
		s.awaitFlow("denied a " + line)
		want["denied a "+line] = ""
	}
	deny("tcp", "198.51.100.1:81", "tcp 198.51.100.1 81 ports www.example.org by shop/allow")
	deny("udp", "198.51.100.1:80", "udp 198.51.100.1 80 ports www.example.org by shop/allow")
	deny("tcp", "[2001:db8::1]:81", "tcp 2001:db8::1 81 ports www.example.org by shop/allow")
	deny("udp", "[2001:db8::1]:443", "udp 2001:db8::1 443 ports www.example.org by shop/allow")
	deny("icmp", "198.51.100.1:0", "icmp 198.51.100.1 ports www.example.org by shop/allow")
	deny("icmp", "[2001:db8::1]:0", "ipv6-icmp 2001:db8::1 ports www.example.org by shop/allow")
	deny("tcp", "198.51.100.2:80", "tcp 198.51.100.2 80 unmatched other.test")
	deny("udp", "[2001:db8::2]:80", "udp 2001:db8::2 80 unmatched other.test")
	deny("tcp", "203.0.113.9:80", "tcp 203.0.113.9 80 address")
	deny("tcp", "[2001:db8::9]:80", "tcp 2001:db8::9 80 address")
	deny("tcp", "198.51.100.4:80", "tcp 198.51.100.4 80 another theirs.example.org of shop/b by shop/allow")
	// A translated destination is logged as dialled.
	deny("tcp", "203.0.113.10:443", "tcp 203.0.113.10 443 address")
	deny("tcp", "10.1.0.1:80", "tcp 10.1.0.1 80 blocked inside.example.org by shop/allow")
	fatal.Await(t, "the end of the grant", func() bool { return s.Pod("a").Probe("tcp", addrPort("198.51.100.3:80")) != lab.Answered })
	deny("tcp", "198.51.100.3:80", "tcp 198.51.100.3 80 expired short.example.org by shop/allow")
	s.onlyFlows(slices.Collect(maps.Keys(want))...)
}

// TestWouldDeny: a pod that only Audit policies select reaches everything, and each
// connection that an enforced policy would deny is a line.
func TestWouldDeny(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		s.zone.add(deniedZone)
		s.translate()
		s.start(map[string]string{
			"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
			"b.yaml": s.Pod("b").Manifest("shop", "b", nil),
			"p.yaml": policy("watch", "enforcement: Audit\n"+strings.TrimSpace(allowWWW)),
		})
		s.resolve("a", "www.example.org", dns.TypeA)
		s.resolve("a", "www.example.org", dns.TypeAAAA)
		s.resolve("a", "other.test", dns.TypeA)
		for range 2 {
			s.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
			s.expect("a", "tcp", "[2001:db8::1]:80", lab.Answered)
			s.expect("b", "tcp", "198.51.100.2:80", lab.Answered)
			s.expect("a", "tcp", "198.51.100.1:81", lab.Answered)
			s.expect("a", "udp", "[2001:db8::1]:80", lab.Answered)
			s.expect("a", "tcp", "198.51.100.2:80", lab.Answered)
			s.expect("a", "icmp", "198.51.100.2:0", lab.Answered)
			s.expect("a", "tcp", "203.0.113.10:443", lab.Answered)
			s.expect("a", "udp", "203.0.113.9:80", lab.Answered)
		}
		want := []string{
			"would-deny a tcp 198.51.100.1 81 ports www.example.org by shop/watch",
			"would-deny a udp 2001:db8::1 80 ports www.example.org by shop/watch",
			"would-deny a tcp 198.51.100.2 80 unmatched other.test",
			"would-deny a icmp 198.51.100.2 unmatched other.test",
			"would-deny a tcp 203.0.113.10 443 address",
			"would-deny a udp 203.0.113.9 80 address",
		}
		for _, w := range want {
			s.awaitFlow(w)
		}
		s.onlyFlows(want...)
		// Enforced, the same is denied, and open addresses are still known.
		s.apply(map[string]string{"p.yaml": policy("watch", allowWWW)})
		s.resolve("a", "www.example.org", dns.TypeA)
		s.expect("a", "tcp", "198.51.100.1:81", lab.Refused)
		s.awaitFlow("denied a tcp 198.51.100.1 81 ports www.example.org by shop/watch")
		s.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
		// And back.
		s.apply(map[string]string{"p.yaml": policy("watch", "enforcement: Audit\n"+strings.TrimSpace(allowWWW))})
		before := len(s.flows())
		s.expect("a", "tcp", "198.51.100.1:80", lab.Answered)
		s.expect("a", "tcp", "203.0.113.11:80", lab.Answered)
		s.awaitFlow("would-deny a tcp 203.0.113.11 80 address")
		if after := s.flows(); len(after) != before+1 {
			t.Errorf("lines of what is allowed: %v", after[before:])
		}
	})
}

// TestDeniedAfterAnUpgrade: the next agent hears of denied connections, and knows by
// which names addresses were opened before it.
func TestDeniedAfterAnUpgrade(t *testing.T) {
	staged(t, onRouted, newStageOf, func(t *testing.T, s *stage) {
		s.zone.add(deniedZone)
		s.startClient(policy("allow", allowWWW))
		s.resolve("a", "www.example.org", dns.TypeA)
		fatal.If(t, s.agent.Upgrade())
		// The first may fall between the two.
		for until := time.Now().Add(lab.Limit); len(s.flows()) == 0 && time.Now().Before(until); {
			s.expect("a", "tcp", "198.51.100.1:81", lab.Refused)
		}
		s.awaitFlow("denied a tcp 198.51.100.1 81 ports www.example.org by shop/allow")
	})
}
