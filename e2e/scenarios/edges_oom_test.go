package scenarios

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// oomRoom is by how much an agent's memory may grow until the kernel kills it.
const oomRoom = 2 << 20

// TestOutOfMemory floods an agent whose control group leaves it no memory: the kernel
// kills it. What is enforced stays, the resolver answers, and the next agent, which
// has its memory, takes over.
func TestOutOfMemory(t *testing.T) {
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := edgesStage(t, kind, strings.Replace(withLimits(fast), "audit", "cache\n    audit", 1))
		group, err := lab.NewCgroup(fmt.Sprintf("namegate-%d-%s-%s", os.Getpid(), kind.network, kind.dataplane))
		if err != nil {
			t.Skipf("no memory can be bounded here: %v", err)
		}
		t.Cleanup(func() {
			_ = s.agent.Stop(syscall.SIGKILL)
			if err := group.Remove(); err != nil {
				t.Error(err)
			}
		})
		fatal.If(t, group.Take(s.agent))
		fatal.If(t, group.Bound(oomRoom))
		s.disturbed("out of memory", outageLimit, []string{"other.example.org"}, func() {
			s.client("a", lab.Resolver4).becomes("with an agent", dns.RcodeRefused)
			s.flood()
			n, err := group.Kills()
			if err != nil || n == 0 {
				t.Errorf("the kernel says it killed %d processes: %v", n, err)
			}
			// Answers by the resolver, which opens nothing.
			s.client("a", lab.Resolver4).becomes("without an agent", dns.RcodeSuccess)
			s.moves(1, "198.51.100.9", "www.example.org")
			s.eventually("a", "198.51.100.9:80", lab.Refused)
			fatal.If(t, s.agent.Start())
			s.eventually("a", "198.51.100.9:80", lab.Answered) // without a query
			s.client("a", lab.Resolver4).becomes("with the next agent", dns.RcodeRefused)
		})
		if n, err := group.Kills(); err != nil || n != 1 {
			t.Errorf("the kernel killed %d processes: %v", n, err)
		}
	})
}

// flood has a pod ask for names that are new until the agent is dead.
func (s *stage) flood() {
	s.t.Helper()
	c := s.client("a", lab.Resolver4)
	dead := begin(func() error {
		signal, err := s.agent.Killed(eventLimit)
		if err == nil && signal != syscall.SIGKILL {
			err = fmt.Errorf("the agent ended by %v", signal)
		}
		return err
	})
	for i := 0; ; i++ {
		select {
		case err := <-dead:
			if err != nil {
				s.t.Fatalf("the flood: %v", err)
			}
			return
		default:
		}
		wire, err := new(dns.Msg).SetQuestion(fmt.Sprintf("b%d.wild.example.org.", i%65536), dns.TypeA).Pack()
		fatal.If(s.t, err)
		_, _ = c.c.Write(wire)
		if i%64 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
}
