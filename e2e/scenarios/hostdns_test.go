package scenarios

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

const nodeNames = `apiVersion: namegate.io/v1alpha1
kind: NodeNetworkPolicy
metadata: {name: host}
spec:
  nodeSelector: {}
  priority: 1
  egress:
  - {action: Accept, matches: [{name: a1.example.org}, {pattern: "a*.example.org"}], ports: [{protocol: TCP, port: 80}]}
  - {action: Deny, matches: [{name: denied.example.org}]}
  - {action: Deny}
`

// newNodeStage is newHostStage with a world whose names end in the numbers of their addresses:
// a9.example.org is 198.51.100.9 and 2001:db8:1::9.
func newNodeStage(t *testing.T) *stage {
	t.Helper()
	t.Parallel()
	s := newHostStage(t, routed, "")
	s.outside.SetAnswer(answerNumbers)
	return s
}

// startNode starts the agent with the policies of nodeNames, and resolvers of the host.
func (s *stage) startNode(resolvers ...string) {
	s.t.Helper()
	var addrs []netip.Addr
	for _, r := range resolvers {
		addrs = append(addrs, netip.MustParseAddr(r))
	}
	s.hostAsks(addrs...)
	s.start(map[string]string{"node.yaml": hostNode, "policies.yaml": nodeNames})
}

// answerNumbers is the world's resolver.
func answerNumbers(q *dns.Msg) *dns.Msg {
	r := new(dns.Msg).SetReply(q)
	name, number := q.Question[0].Name, 0
	switch _, err := fmt.Sscanf(name, "a%d.example.org.", &number); {
	case name == "denied.example.org.":
		number = 250
	case err != nil || name != fmt.Sprintf("a%d.example.org.", number):
		r.Rcode = dns.RcodeNameError
		return r
	}
	text := map[uint16]string{dns.TypeA: fmt.Sprintf("%s 30 IN A 198.51.100.%d", name, number), dns.TypeAAAA: fmt.Sprintf("%s 30 IN AAAA 2001:db8:1::%d", name, number)}[q.Question[0].Qtype]
	if text != "" {
		rr, _ := dns.NewRR(text)
		r.Answer = append(r.Answer, rr)
	}
	return r
}

// query asks a resolver from the node, and returns the response code and the addresses.
func (s *stage) query(network, resolver, name string, qtype uint16) (rcode int, addrs []string, err error) {
	r, err := s.Node.Ask(network, netip.AddrPortFrom(netip.MustParseAddr(resolver), 53), name, qtype, lab.Limit)
	if err != nil {
		return 0, nil, err
	}
	for _, a := range lab.Addresses(r) {
		addrs = append(addrs, a.String())
	}
	return r.Rcode, addrs, nil
}

// reaches compares whether the node reaches port 80 of an address.
func (s *stage) reaches(when, addr string, want lab.Outcome) {
	s.t.Helper()
	diff.Equal(s.t, want, s.Node.ProbeFor("tcp", netip.AddrPortFrom(netip.MustParseAddr(addr), 80), lab.PatienceFor(want)), when, "the node to", addr)
}

// intercepted waits until the node's queries to resolvers come to the agent: it has written where they
// lead, and, of resolvers of the world, denies a name that they answer.
func (s *stage) intercepted(resolvers ...string) {
	s.t.Helper()
	fatal.Await(s.t, "the node's queries are intercepted", func() bool {
		out, err := s.Node.Run("nft", "list", "table", "inet", "namegate")
		return err == nil && !slices.ContainsFunc(resolvers, func(r string) bool { return !strings.Contains(out, r+" : ") })
	})
	for _, r := range resolvers {
		if !slices.Contains(worldResolvers, r) {
			continue
		}
		fatal.Await(s.t, "the agent denies a name that "+r+" is asked for", func() bool {
			rcode, _, err := s.query("udp", r, "denied.example.org.", dns.TypeA)
			return err == nil && rcode == dns.RcodeNameError
		})
	}
}

var worldResolvers = []string{"192.0.2.53", "2001:db8::53"}

// TestNamesOfTheNode: a name that the node's programs ask opens its addresses on the node, and no
// others, over UDP and TCP, by IPv4 and IPv6; exact names are open before a program asks; a denied
// name is not answered. When the policy goes, queries go where they are sent.
func TestNamesOfTheNode(t *testing.T) {
	n := newNodeStage(t)
	n.startNode(worldResolvers...)
	n.reaches("by the exact name", "198.51.100.1", lab.Answered)
	n.reaches("by the exact name", "2001:db8:1::1", lab.Answered)
	n.intercepted(worldResolvers...)
	number := 10
	for _, resolver := range []string{"192.0.2.53", "2001:db8::53"} {
		for _, network := range []string{"udp", "tcp"} {
			number++
			a4, a6 := fmt.Sprintf("198.51.100.%d", number), fmt.Sprintf("2001:db8:1::%d", number)
			n.reaches("unasked", a4, lab.Refused)
			name := fmt.Sprintf("a%d.example.org.", number)
			if rcode, addrs, err := n.query(network, resolver, name, dns.TypeA); rcode != 0 || err != nil || !slices.Equal(addrs, []string{a4}) {
				t.Errorf("%s over %s: %d %v, %v", resolver, network, rcode, addrs, err)
			}
			n.reaches("after a query for A", a4, lab.Answered)
			n.reaches("after a query for A", a6, lab.Refused)
			if _, _, err := n.query(network, resolver, name, dns.TypeAAAA); err != nil {
				t.Error(err)
			}
			n.reaches("after a query for AAAA", a6, lab.Answered)
		}
	}
	if rcode, addrs, err := n.query("udp", "192.0.2.53", "denied.example.org.", dns.TypeA); rcode != dns.RcodeNameError || len(addrs) != 0 || err != nil {
		t.Errorf("a denied name: %d %v, %v", rcode, addrs, err)
	}
	log, err := os.ReadFile(filepath.Join(n.agent.Dir, "audit.log"))
	if err != nil || !strings.Contains(string(log), "a11.example.org") {
		t.Errorf("the audit log, %v:\n%s", err, log)
	}
	fatal.If(t, n.agent.Apply(map[string]string{"policies.yaml": ""}))
	fatal.Await(t, "the policy is gone", func() bool {
		out, err := n.Node.Run("nft", "list", "chains")
		return err == nil && !strings.Contains(out, "type route")
	})
	if rcode, addrs, err := n.query("udp", "192.0.2.53", "denied.example.org.", dns.TypeA); rcode != 0 || len(addrs) != 1 || err != nil {
		t.Errorf("without the policy: %d %v, %v", rcode, addrs, err)
	}
}

// TestClientsOfTheNode: the queries of different resolvers of programs open the answered addresses.
func TestClientsOfTheNode(t *testing.T) {
	n := newNodeStage(t)
	n.startNode(worldResolvers...)
	n.intercepted(worldResolvers...)
	const clients = "testdata/clients/"
	for i, c := range []struct{ name, nameserver, program string }{
		{"the system's resolver", "192.0.2.53", "getent ahosts NAME"},
		{"the system's resolver by IPv6", "2001:db8::53", "getent ahosts NAME"},
		{"systemd-resolved", "192.0.2.53", "sh " + clients + "resolved.sh " + resolvedRoot + " getent ahosts NAME"},
		{"nscd", "192.0.2.53", "sh " + clients + "nscd.sh " + nscdRoot + " getent ahosts NAME"},
		{"dnsmasq", "127.0.0.1", "sh " + clients + "dnsmasq.sh 192.0.2.53 getent ahosts NAME"},
		{"dig over TCP", "192.0.2.53", "dig +tcp +short @192.0.2.53 NAME"},
	} {
		etc, err := lab.WriteEtc(t.TempDir(), c.nameserver)
		fatal.If(t, err)
		number := 60 + i
		address := fmt.Sprintf("198.51.100.%d", number)
		n.reaches(c.name+" has not asked", address, lab.Refused)
		name := fmt.Sprintf("a%d.example.org", number)
		out, err := n.Node.RunIn(etc, strings.Fields(strings.ReplaceAll(c.program, "NAME", name))...)
		if err != nil || !strings.Contains(out, address) {
			t.Errorf("%s: %v: %s", c.name, err, out)
		}
		n.reaches(c.name, address, lab.Answered)
	}
}

// forward starts a resolver of a host that asks another one, for one name at most so many times: that
// bounds a loop.
func forward(t *testing.T, host *lab.Host, at, to string) *lab.Outside {
	t.Helper()
	const most = 4
	var mu sync.Mutex
	seen := map[string]int{}
	o, err := host.ServeDNS(addrPort(at+":53"), func(q *dns.Msg) *dns.Msg {
		name := q.Question[0].Name
		mu.Lock()
		seen[name]++
		again := seen[name] > most
		mu.Unlock()
		if again {
			return answerNumbers(q)
		}
		r, err := host.Ask("udp", addrPort(to+":53"), name, q.Question[0].Qtype, lab.Limit)
		if err != nil {
			return nil
		}
		r.Id = q.Id
		return r
	})
	fatal.If(t, err)
	t.Cleanup(o.Close)
	return o
}

const nodeAddress = "192.168.77.1" // of the lab's node

// TestAForwarderOnTheNode: one that the host's programs ask, and that asks another resolver of the
// host, is intercepted in both places.
func TestAForwarderOnTheNode(t *testing.T) {
	n := newNodeStage(t)
	forward(t, n.Node, nodeAddress, "192.0.2.53")
	n.startNode(nodeAddress, "192.0.2.53")
	n.intercepted(nodeAddress, "192.0.2.53")
	if rcode, addrs, err := n.query("udp", nodeAddress, "a40.example.org.", dns.TypeA); rcode != 0 || err != nil || len(addrs) != 1 {
		t.Errorf("%d %v, %v", rcode, addrs, err)
	}
	n.reaches("by the forwarder", "198.51.100.40", lab.Answered)
	diff.Has(t, "is a forwarder on this node", n.agent.Log(), "the log")
}

const looping = "198.51.100.88"

// TestALoop: a resolver whose queries come back to it by a forwarder on the node is not intercepted,
// and that is told; others are.
func TestALoop(t *testing.T) {
	n := newNodeStage(t)
	forward(t, n.Node, nodeAddress, looping)
	beyond := forward(t, n.World, looping, nodeAddress)
	n.startNode(looping, "192.0.2.53")
	fatal.Await(t, "the loop is found", func() bool { return strings.Contains(n.agent.Log(), "come back to it") })
	n.intercepted("192.0.2.53")
	if out, err := n.Node.Run("nft", "list", "map", "inet", "namegate", "nodeintercept4"); err != nil || strings.Contains(out, looping) {
		t.Errorf("it is intercepted: %v, %s", err, out)
	}
	// The resolver itself answers the node.
	beyond.SetAnswer(answerNumbers)
	if rcode, addrs, err := n.query("udp", looping, "denied.example.org.", dns.TypeA); rcode != 0 || err != nil || len(addrs) != 1 {
		t.Errorf("%d %v, %v", rcode, addrs, err)
	}
}
