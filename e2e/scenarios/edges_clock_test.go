package scenarios

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// cached fills the cache, and recognizes the agent by an expired answer.
const cached = `
. {
    forward . 192.0.2.53 2001:db8::53
    cache
    cluster cluster.local 10.1.0.0/24 fd00:1::/64
    grant timeout 4s
    audit AUDIT
}
`

var clockSteps = []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour}

// clockOf gives the running agent a clock of its own.
func clockOf(t *testing.T, a *lab.Agent) *lab.Clock {
	t.Helper()
	c, err := a.Clock()
	if errors.Is(err, lab.ErrNoClock) || errors.Is(err, os.ErrPermission) {
		t.Skipf("this agent cannot be given a clock of its own: %v", err)
	}
	fatal.If(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *stage) clockOf() *lab.Clock {
	s.t.Helper()
	return clockOf(s.t, s.agent)
}

func (s *stage) step(c *lab.Clock, ahead time.Duration) {
	s.t.Helper()
	fatal.If(s.t, c.Step(ahead))
}

// ttl queries a cached answer, and returns its TTL.
func (s *stage) ttl(name string) time.Duration {
	s.t.Helper()
	r, err := s.ask("a", "udp", name, dns.TypeA)
	if err != nil || len(r.Answer) != 1 {
		s.t.Fatalf("%s: %v, %v", name, r, err)
	}
	return time.Duration(r.Answer[0].Header().Ttl) * time.Second
}

// opens has pod a query a name and reach its address, and returns when it queried. On a busy
// machine the grant may end before the probe: then it queries again.
func (s *stage) opens(name, to string, lasts time.Duration) (asked time.Time) {
	s.t.Helper()
	for until := time.Now().Add(eventLimit); time.Now().Before(until); {
		asked = time.Now()
		s.resolve("a", name, dns.TypeA)
		got := s.Pod("a").ProbeFor("tcp", addrPort(to), lab.Limit)
		if got == lab.Answered {
			return asked
		}
		if late := time.Since(asked); late < lasts {
			s.t.Fatalf("%s, %v after the query for %s: %s", to, late, name, got)
		}
	}
	s.t.Fatalf("the machine is too busy to reach %s within the time of its grant", to)
	return asked
}

// ends waits for the expiry of a grant, which must not come before its time: the answer's
// TTL and a second of grace after the query, by the clock of the test.
func (s *stage) ends(to string, asked time.Time, lasts time.Duration) {
	s.t.Helper()
	for s.Pod("a").Probe("tcp", addrPort(to)) == lab.Answered {
		if late := time.Since(asked) - lasts; late > lab.Limit {
			s.t.Errorf("%s is open %v after its end", to, late)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	if lasted := time.Since(asked); lasted < lasts {
		s.t.Errorf("%s ended after %v, it was to last %v", to, lasted, lasts)
	}
}

// TestClockSteps sets the agent's clock, forward and back, by an hour and by a day:
// grants end at their deadlines, interception stays, answers arrive and open addresses,
// cached answers have a right TTL, and the log continues with the clock's time.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := edgesStage(t, kind, cached)
		clock := s.clockOf()
		asked := s.disturbed("clock steps", unnoticed, []string{"www.example.org", "other.example.org"}, func() {
			for _, ahead := range append(clockSteps, 0) {
				t.Logf("%v ahead", ahead)
				s.moves(1, "198.51.100.3", "short.example.org")
				const lasts = 2 * time.Second
				asked := s.opens("short.example.org", "198.51.100.3:80", lasts)
				s.step(clock, ahead)
				s.ends("198.51.100.3:80", asked, lasts)
				if !s.status().Enforcer.Intercepting {
					t.Error("interception is said to be off")
				}
				s.inLog(ahead)
				if told := s.ttl("www.example.org"); told > 600*time.Second || told < 300*time.Second {
					t.Errorf("of 600 s %v are told", told)
				}
			}
		})
		if asked.lost > 0 || asked.rcodes[dns.RcodeSuccess]+asked.rcodes[dns.RcodeRefused] != asked.sent || asked.rcodes[dns.RcodeRefused] < asked.sent/2-1 {
			t.Errorf("not every question was answered, by the agent: %+v", asked)
		}
	})
}

// inLog waits for a decision of now, as the agent's clock tells it.
func (s *stage) inLog(ahead time.Duration) {
	s.t.Helper()
	s.until("the log goes on", func(int) bool {
		lines, err := s.agent.AuditLines()
		if err != nil || len(lines) == 0 {
			return false // a line is being written
		}
		text, _ := lines[len(lines)-1]["time"].(string)
		at, err := time.Parse(time.RFC3339Nano, text)
		return err == nil && time.Since(at.Add(-ahead)).Abs() < time.Minute
	})
}

// TestSuspendedMachine stops the agent for longer than the dead-man switch waits, and
// sets its clock by an hour, as when a machine is suspended: neither the kernel's clock
// for timeouts nor the agent's ran meanwhile. Grants count the time awake; a cached
// answer has its real age, and is queried again.
func TestSuspendedMachine(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := edgesStage(t, kind, cached)
		s.zone.add("r1.wild.example.org. 60 IN A 198.51.100.11")
		s.outside.SetAnswer(s.zone.answer) // of names below wild too
		s.resolve("a", "r1.wild.example.org", dns.TypeA)
		clock := s.clockOf()
		s.disturbed("a suspended machine", outageLimit, []string{"other.example.org"}, func() {
			fatal.If(t, s.agent.Signal(syscall.SIGSTOP))
			late := s.client("a", lab.Resolver4)
			late.becomes("while it is stopped", dns.RcodeSuccess)
			s.moves(1, "198.51.100.9", "www.example.org", "r1.wild.example.org")
			s.step(clock, time.Hour)
			fatal.If(t, s.agent.Signal(syscall.SIGCONT))
			// The exact name is resolved again, and not from the cache.
			s.eventually("a", "198.51.100.9:80", lab.Answered)
			late.becomes("when it goes on", dns.RcodeRefused)
			// So is what only the pod asks for. What it had it keeps for its time.
			s.until("a kept answer is asked anew", func(int) bool {
				addrs := s.resolve("a", "r1.wild.example.org", dns.TypeA)
				return len(addrs) == 1 && addrs[0] == addrPort("198.51.100.9:80").Addr()
			})
			s.expect("a", "tcp", "198.51.100.11:80", lab.Answered)
		})
	})
}
