package scenarios

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// caches are the addresses of NodeLocal DNSCache on the node.
var caches = []netip.Addr{netip.MustParseAddr("169.254.20.10"), netip.MustParseAddr("fd00:20::10")}

// nodeLocal starts a resolver of the node with the rules of NodeLocal DNSCache, which exempt its
// packets from connection tracking.
func (s *stage) nodeLocal() {
	s.t.Helper()
	for i, a := range caches {
		rules := []string{"iptables", "ip6tables"}[i]
		fatal.If(s.t, s.Node.IP("addr", "add", fmt.Sprintf("%s/%d", a, a.BitLen()), "dev", "lo", "nodad"))
		for _, protocol := range []string{"udp", "tcp"} {
			for _, match := range []string{"PREROUTING -d %s -p %s --dport 53", "OUTPUT -s %s -p %s --sport 53", "OUTPUT -d %s -p %s --dport 53"} {
				_, err := s.Node.Run(rules, strings.Fields("-t raw -A "+fmt.Sprintf(match, a, protocol)+" -j NOTRACK")...)
				fatal.If(s.t, err)
			}
		}
		cache, err := s.Node.ServeDNS(netip.AddrPortFrom(a, 53), s.zone.answer)
		fatal.If(s.t, err)
		s.t.Cleanup(cache.Close)
	}
}

// TestNodeLocalDNSCache: names that a pod asks NodeLocal DNSCache for, over UDP and over TCP, are
// decided by the agent and logged. While no agent runs NodeLocal DNSCache answers, and the next agent
// serves again.
func TestNodeLocalDNSCache(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		for n := range 2 * len(caches) {
			s.zone.add(fmt.Sprintf("n%d.wild.example.org. 60 IN A 198.51.100.1%[1]d\nr%[1]d.example.org. 60 IN A 198.51.100.2%[1]d", n))
		}
		s.nodeLocal()
		var err error
		s.agent, err = s.NewAgent(agentBinary, t.TempDir(), strings.Replace(corefile, "audit AUDIT", fmt.Sprintf("audit AUDIT\n    intercept %s %s", caches[0], caches[1]), 1), kind.args()...)
		fatal.If(t, err)
		s.startClient(policy("wild", `
podSelector: {matchLabels: {app: client}}
dns: {unmatched: Refuse}
egress:
- matches: [{pattern: "*.wild.example.org"}]
  ports: [{protocol: TCP, port: 80}]`))
		for i, network := range []string{"udp", "tcp"} {
			for j, cache := range caches {
				n := len(caches)*i + j
				refused, denied, allowed := fmt.Sprintf("r%d.example.org", n), fmt.Sprintf("198.51.100.2%d:80", n), fmt.Sprintf("198.51.100.1%d:80", n)
				if r, err := s.askAt("a", network, cache, refused); err != nil || r.Rcode != dns.RcodeRefused {
					t.Errorf("a name that no policy allows, of %s over %s: %v, %v", cache, network, err, r)
				}
				s.expect("a", "tcp", denied, lab.Refused)
				s.expect("a", "tcp", allowed, lab.Refused)
				if r, err := s.askAt("a", network, cache, fmt.Sprintf("n%d.wild.example.org", n)); err != nil || r.Rcode != dns.RcodeSuccess || len(r.Answer) != 1 {
					t.Errorf("a name that a policy allows, of %s over %s: %v, %v", cache, network, err, r)
				}
				s.expect("a", "tcp", allowed, lab.Answered)
				s.logs(refused)
			}
		}
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		s.rcodeBecomes("without an agent", dns.RcodeSuccess)
		fatal.If(t, s.agent.Start())
		s.rcodeBecomes("with the next agent", dns.RcodeRefused)
	})
}

// rcodeBecomes waits until pod a gets an rcode from each cache for a name that no policy allows.
func (s *stage) rcodeBecomes(when string, rcode int) {
	s.t.Helper()
	for _, cache := range caches {
		for _, network := range []string{"udp", "tcp"} {
			fatal.Await(s.t, fmt.Sprintf("%s %s over %s says %s", when, cache, network, dns.RcodeToString[rcode]), func() bool {
				r, err := s.askAt("a", network, cache, "r0.example.org")
				return err == nil && r.Rcode == rcode
			})
		}
	}
}

// askAt asks a resolver from a pod, over a connection of its own.
func (s *stage) askAt(pod, network string, resolver netip.Addr, name string) (*dns.Msg, error) {
	return s.Pod(pod).Ask(network, netip.AddrPortFrom(resolver, 53), name, dns.TypeA, lab.Limit)
}

// logs waits for a decision about a name in the audit log.
func (s *stage) logs(name string) {
	s.t.Helper()
	fatal.Await(s.t, "the log has "+name, func() bool {
		lines, err := s.agent.AuditLines()
		fatal.If(s.t, err)
		for _, l := range lines {
			if question, ok := l["question"].(map[string]any); ok && question["name"] == name {
				return true
			}
		}
		return false
	})
}
