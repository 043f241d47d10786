package scenarios

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/e2e/lab"
)

const denyAllNames = `apiVersion: namegate.io/v1alpha1
kind: ClusterFQDNNetworkPolicy
metadata: {name: host}
spec:
  tier: Admin
  priority: 1
  subject: {nodes: {}}
  egress:
  - {action: Deny, matches: [{pattern: "**"}]}
  - {action: Deny}
  dns: {unmatched: NXDomain}
`

// TestNamesOfFailsafes: a time server by a name whose address is another one in each answer. Policies that deny
// every name and every destination leave the node the name, and each answered address with the port of the
// failsafe alone, from the first packet on. An agent that does not enforce policies for nodes ends them.
func TestNamesOfFailsafes(t *testing.T) {
	n := newNodeLab(t, worldResolvers, func(n *nodeLab) {
		fatal.If(t, lab.HostFiles(filepath.Join(n.dir, "host"), map[string]string{"etc/systemd/timesyncd.conf": "[Time]\nNTP=time.test\n"}))
		clocks, err := n.World.Serve(123)
		fatal.If(t, err)
		t.Cleanup(clocks.Close)
		var answered atomic.Int32
		n.world.SetAnswer(func(q *dns.Msg) *dns.Msg {
			if q.Question[0].Name != "time.test." {
				return answerNumbers(q)
			}
			r := new(dns.Msg).SetReply(q)
			if q.Question[0].Qtype == dns.TypeA {
				rr, err := dns.NewRR(fmt.Sprintf("time.test. 0 IN A 198.51.100.%d", 10+answered.Add(1)%200))
				fatal.If(t, err)
				r.Answer = append(r.Answer, rr)
			}
			return r
		})
	})
	fatal.If(t, n.agent.Apply(map[string]string{"policies.yaml": denyAllNames}))
	n.intercepted("192.0.2.53", "2001:db8::53")
	seen := map[string]bool{}
	for range 5 {
		rcode, addrs, err := n.query("udp", "192.0.2.53", "time.test.", dns.TypeA)
		if err != nil || rcode != dns.RcodeSuccess || len(addrs) != 1 || seen[addrs[0]] {
			t.Fatalf("%s %v, %v", dns.RcodeToString[rcode], addrs, err)
		}
		seen[addrs[0]] = true
		if got := n.Node.ProbeFor("udp", netip.AddrPortFrom(netip.MustParseAddr(addrs[0]), 123), lab.Limit); got != lab.Answered {
			t.Errorf("%s, which was answered: %s", addrs[0], got)
		}
		n.reaches("a port that is no failsafe", addrs[0], lab.Refused)
	}
	if rcode, _, err := n.query("udp", "192.0.2.53", "a9.example.org.", dns.TypeA); err != nil || rcode != dns.RcodeNameError {
		t.Errorf("another name: %s, %v", dns.RcodeToString[rcode], err)
	}
	n.agent.Use(agentBinary)
	fatal.If(t, n.agent.Upgrade())
	fatal.Await(t, "the policy for the node ends", func() bool {
		rules, err := n.Node.Run("nft", "list", "chains")
		return err == nil && !strings.Contains(rules, "node-")
	})
	n.reaches("by an agent without --nodes", "198.51.100.250", lab.Answered)
	rcode, addrs, err := n.query("udp", "192.0.2.53", "a9.example.org.", dns.TypeA)
	if err != nil || rcode != dns.RcodeSuccess || len(addrs) != 1 {
		t.Errorf("a query to the resolver: %s %v, %v", dns.RcodeToString[rcode], addrs, err)
	}
}
