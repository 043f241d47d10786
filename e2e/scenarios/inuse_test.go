package scenarios

import (
	"fmt"
	"net"
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

const shortTTL = `
podSelector: {}
ttl: {minSeconds: 1, maxSeconds: 2, graceSeconds: 1, inUse: Expire}
egress:
- matches: [{pattern: "*.wild.test"}]
  ports: [{protocol: TCP, port: 80}]`

// echoing returns a function that asserts whether a connection is answered.
func echoing(t *testing.T) func(what string, c net.Conn, want bool) {
	return func(what string, c net.Conn, want bool) {
		t.Helper()
		if got := lab.Echo(c, map[bool]time.Duration{true: lab.Limit, false: lab.Patience}[want]); (got == lab.Answered) != want {
			t.Errorf("a connection %s: %s", what, got)
		}
	}
}

func TestRestartKeepsGrants(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s, echoes := newStageOf(t, kind), echoing(t)
		s.zone.add(`x.wild.test. 600 IN A 198.51.100.5
			y.gone.test. 600 IN A 198.51.100.6`)
		wild := `
podSelector: {}
egress:
- matches: [{pattern: "*.wild.test"}]
  ports: [{protocol: TCP, port: 80}]`
		gone := "\n- matches: [{pattern: \"*.gone.test\"}]\n  ports: [{protocol: TCP, port: 80}]"
		s.start(map[string]string{"a.yaml": s.Pod("a").Manifest("shop", "a", nil), "p.yaml": policy("wild", wild+gone)})
		s.resolve("a", "x.wild.test", dns.TypeA)
		s.resolve("a", "y.gone.test", dns.TypeA)
		s.expect("a", "tcp", "198.51.100.6:80", lab.Answered)
		conns := map[string]net.Conn{}
		for _, to := range []string{"198.51.100.5:80", "198.51.100.6:80"} {
			c, err := s.Pod("a").Dial("tcp", to, lab.Limit)
			fatal.If(t, err)
			defer c.Close()
			conns[to] = c
		}
		fatal.If(t, s.agent.Stop(syscall.SIGTERM))
		// The policies change while no agent runs.
		fatal.If(t, s.agent.Write(map[string]string{"p.yaml": policy("wild", wild)}))
		asked := len(s.outside.Asked())
		fatal.If(t, s.agent.Start())
		s.expect("a", "tcp", "198.51.100.5:80", lab.Answered)
		s.expect("a", "tcp", "198.51.100.6:80", lab.Refused)
		echoes("of a grant that is kept", conns["198.51.100.5:80"], true)
		echoes("of a grant that the next agent found revoked", conns["198.51.100.6:80"], false)
		if now := s.outside.Asked(); len(now) != asked {
			t.Errorf("the grant was not read back from the kernel but asked for: %v", now[asked:])
		}
	})
}

// TestCutOfForgottenConnections has a connection that outlived its grant and the
// agent that had made it: when its policy goes, it goes too.
func TestCutOfForgottenConnections(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s, echoes := newStageOf(t, kind), echoing(t)
		s.zone.add(`
		x.wild.test. 1 IN A 198.51.100.5
		www.example.org. 60 IN A 198.51.100.1`)
		s.start(map[string]string{
			"a.yaml":   s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
			"p.yaml":   policy("wild", shortTTL),
			"www.yaml": policy("allow-www", allowWWW),
		})
		s.resolve("a", "x.wild.test", dns.TypeA)
		old, err := s.Pod("a").Dial("tcp", "198.51.100.5:80", lab.Limit)
		fatal.If(t, err)
		defer old.Close()
		s.eventually("a", "198.51.100.5:80", lab.Refused)
		www, err := s.Pod("a").Dial("tcp", "198.51.100.1:80", lab.Limit)
		fatal.If(t, err)
		defer www.Close()
		fatal.If(t, s.agent.Stop(syscall.SIGTERM))
		fatal.If(t, s.agent.Start())
		echoes("of an ended grant, with the next agent", old, true)
		s.apply(map[string]string{"p.yaml": ""})
		echoes("of an ended grant that the next agent never knew, when its policy went", old, false)
		echoes("that another policy allows", www, true)
	})
}
