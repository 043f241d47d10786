package scenarios

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestNetLostBetweenAgents: another program removes one net while no agent runs. The other one
// denies until the next agent's rules are in force, which may wait for names, and then both do.
func TestNetLostBetweenAgents(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newStageOf(t, kind)
		s.zone.add("www.example.org. 600 IN A 198.51.100.1")
		s.zone.say("dead.example.org", func(*dns.Msg) *dns.Msg { return nil })
		s.startClient(policy("www", strings.Replace(allowWWW, "[{name: www.example.org}]", "[{name: www.example.org}, {name: dead.example.org}]", 1)))
		s.resolve("a", "www.example.org", dns.TypeA)
		lost := []string{"nft delete table inet namegate", "nft delete table inet namegate-net", "nft flush set inet namegate-net selected4"}
		if kind.dataplane == iptables {
			lost = []string{"nft delete table inet namegate", "iptables -t mangle -F; iptables -t security -F"}
		}
		for _, shell := range lost {
			fatal.If(t, s.agent.Stop(syscall.SIGKILL))
			run(t, s.Node, "sh", "-c", shell)
			v := s.watchfully("a", nil, []string{"198.51.100.2:80"})
			time.Sleep(100 * time.Millisecond) // without an agent
			err := s.agent.Start()
			v.end()
			fatal.If(t, err)
			if passed := v.passed.Load(); passed > 0 {
				t.Errorf("%s: %d of %d denied connections passed", shell, passed, v.denied.Load())
			}
			if out, err := s.Node.Run("sh", "-c", "nft list table inet namegate"); err != nil || !strings.Contains(out, s.Pod("a").Addr4.String()) {
				t.Errorf("%s: the table is not as it was: %v\n%s", shell, err, out)
			}
			s.resolve("a", "www.example.org", dns.TypeA)
			s.eventually("a", "198.51.100.1:80", lab.Answered)
			s.expect("a", "tcp", "198.51.100.2:80", lab.Refused)
		}
	})
}
