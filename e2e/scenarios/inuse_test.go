package scenarios

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// briefly has addresses whose time is three seconds, which use renews.
const briefly = `
podSelector: {}
ttl: {minSeconds: 1, maxSeconds: 2, graceSeconds: 1, reuseSeconds: 20}
egress:
- matches: [{pattern: "*.wild.test"}]
  ports: [{protocol: TCP, port: 80}, {protocol: TCP, port: 1024, endPort: 65535}, {protocol: UDP, port: 1024, endPort: 65535}]`

// inUseStage is a stage with a pod whose names resolve to addresses that the test moves.
type inUseStage struct {
	*stage
	mu    sync.Mutex
	addrs map[string]string // by name; "" fails
}

func newInUseStage(t *testing.T, kind nodeKind) *inUseStage {
	s := &inUseStage{stage: newStageOf(t, kind), addrs: map[string]string{}}
	s.start(map[string]string{"a.yaml": s.Pod("a").Manifest("shop", "a", nil), "p.yaml": policy("wild", briefly)})
	return s
}

// moves has a name resolve to an address from now on, "" to none: the resolver fails.
func (s *inUseStage) moves(name, to string) {
	s.mu.Lock()
	s.addrs[name] = to
	s.mu.Unlock()
	s.zone.say(name, func(query *dns.Msg) *dns.Msg {
		r := new(dns.Msg).SetReply(query)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.addrs[name] == "" {
			r.Rcode = dns.RcodeServerFailure
		} else if query.Question[0].Qtype == dns.TypeA {
			rr, _ := dns.NewRR(name + ". 1 IN A " + s.addrs[name])
			r.Answer = append(r.Answer, rr)
		}
		return r
	})
}

// connects connects again and again, without asking, and returns how often that failed.
func (s *inUseStage) connects(to string, during time.Duration) (failed int) {
	for until := time.Now().Add(during); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if s.ProbeOf("a", to) != lab.Answered {
			failed++
		}
	}
	return failed
}

// ProbeOf is a probe of a pod over TCP.
func (s *inUseStage) ProbeOf(pod, to string) lab.Outcome {
	return s.Pod(pod).ProbeFor("tcp", netip.MustParseAddrPort(to), lab.Limit)
}

// TestInUseStaysReachable: a client that asks once and connects again and again is never cut
// off while the name keeps its address, also by an agent that was away for longer than the
// grant; an address that is not used ends.
func TestInUseStaysReachable(t *testing.T) {
	staged(t, onRouted, newInUseStage, func(t *testing.T, s *inUseStage) {
		s.moves("used.wild.test", "198.51.100.5")
		s.moves("idle.wild.test", "198.51.100.6")
		s.resolve("a", "used.wild.test", dns.TypeA)
		s.resolve("a", "idle.wild.test", dns.TypeA)
		if failed := s.connects("198.51.100.5:80", 10*time.Second); failed > 0 {
			t.Errorf("%d connections failed in ten seconds", failed)
		}
		s.expect("a", "tcp", "198.51.100.6:80", lab.Refused)
		if got := s.logged("used.wild.test"); !slices.Contains(got, "renewed") {
			t.Errorf("the log's verdicts: %v", got)
		}
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		if failed := s.connects("198.51.100.5:80", 6*time.Second); failed > 0 {
			t.Errorf("%d connections failed without an agent", failed)
		}
		fatal.If(t, s.agent.Start())
		if failed := s.connects("198.51.100.5:80", 6*time.Second); failed > 0 {
			t.Errorf("%d connections failed after the agent was away", failed)
		}
	})
}

// logged are the verdicts of the log's decisions about a name.
func (s *stage) logged(name string) (verdicts []string) {
	s.t.Helper()
	lines, err := s.agent.AuditLines()
	if err != nil {
		return nil // a line is being written
	}
	for _, l := range lines {
		if q, ok := l["question"].(map[string]any); ok && q["name"] == name {
			verdicts = append(verdicts, fmt.Sprint(l["verdict"]))
		}
	}
	return verdicts
}
