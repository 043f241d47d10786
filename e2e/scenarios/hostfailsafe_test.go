package scenarios

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
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

// timeServers gives the host a time server by the name time.test, whose address is another one in each answer.
func timeServers(n *nodeLab) {
	fatal.If(n.t, lab.HostFiles(filepath.Join(n.dir, "host"), map[string]string{"etc/systemd/timesyncd.conf": "[Time]\nNTP=time.test\n"}))
	clocks, err := n.World.Serve(123)
	fatal.If(n.t, err)
	n.t.Cleanup(clocks.Close)
	var answered atomic.Int32
	n.world.SetAnswer(func(q *dns.Msg) *dns.Msg {
		if q.Question[0].Name != "time.test." {
			return answerNumbers(q)
		}
		r := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			rr, err := dns.NewRR(fmt.Sprintf("time.test. 0 IN A 198.51.100.%d", 10+answered.Add(1)%200))
			fatal.If(n.t, err)
			r.Answer = append(r.Answer, rr)
		}
		return r
	})
}

// hasTime demands that the node reaches a time server.
func (n *nodeLab) hasTime(when, addr string) {
	n.t.Helper()
	if got := n.Node.ProbeFor("udp", netip.AddrPortFrom(netip.MustParseAddr(addr), 123), lab.Limit); got != lab.Answered {
		n.t.Errorf("%s: the node to the time server %s: %s", when, addr, got)
	}
}

// TestAnAgentWithoutDNS: the policies stay enforced by an agent that starts while the names of failsafes cannot
// be resolved, and the addresses that the agent before it found stay failsafes.
func TestAnAgentWithoutDNS(t *testing.T) {
	n := newNodeLab(t, worldResolvers, timeServers)
	fatal.If(t, n.agent.Apply(map[string]string{"policies.yaml": denyAllNames}))
	n.intercepted("192.0.2.53")
	_, addrs, err := n.query("udp", "192.0.2.53", "time.test.", dns.TypeA)
	if err != nil || len(addrs) != 1 {
		t.Fatalf("%v, %v", addrs, err)
	}
	n.hasTime("by the first agent", addrs[0])
	n.world.SetAnswer(func(*dns.Msg) *dns.Msg { return nil })
	fatal.If(t, n.agent.Stop(syscall.SIGKILL))
	fatal.If(t, n.agent.Start())
	n.reaches("by an agent without DNS", "198.51.100.250", lab.Refused)
	n.hasTime("by an agent without DNS", addrs[0])
	out, err := n.Node.Run(agentBinary, "status", "--socket", n.agent.Socket())
	fatal.If(t, err)
	if !strings.Contains(out, "the name time.test (time) cannot be resolved") || !strings.Contains(out, "that were found on this node") {
		t.Errorf("the status:\n%s", out)
	}
}

// TestNamesOfFailsafes: a time server by a name whose address is another one in each answer. Policies that deny
// every name and every destination leave the node the name, and each answered address with the port of the
// failsafe alone, from the first packet on. An agent that does not enforce policies for nodes ends them.
func TestNamesOfFailsafes(t *testing.T) {
	n := newNodeLab(t, worldResolvers, timeServers)
	fatal.If(t, n.agent.Apply(map[string]string{"policies.yaml": denyAllNames}))
	n.intercepted("192.0.2.53", "2001:db8::53")
	seen := map[string]bool{}
	for range 5 {
		rcode, addrs, err := n.query("udp", "192.0.2.53", "time.test.", dns.TypeA)
		if err != nil || rcode != dns.RcodeSuccess || len(addrs) != 1 || seen[addrs[0]] {
			t.Fatalf("%s %v, %v", dns.RcodeToString[rcode], addrs, err)
		}
		seen[addrs[0]] = true
		n.hasTime("answered", addrs[0])
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
