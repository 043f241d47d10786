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

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/e2e/lab"
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
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		s := newInUseStage(t, kind)
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

// TestMovedNames: an address that the name does not hold any more stays for the pod while an
// answered connection to it is active, and not for longer than reuseSeconds; datagrams
// that are not answered keep nothing; a resolver that fails closes nothing that is in use.
func TestMovedNames(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Bridged, func(t *testing.T, kind nodeKind) {
		s := newInUseStage(t, kind)
		for i, name := range []string{"talks.wild.test", "mutters.wild.test", "fails.wild.test", "ends.wild.test"} {
			s.moves(name, fmt.Sprintf("198.51.100.%d", 5+i))
			s.resolve("a", name, dns.TypeA)
		}
		stop := make(chan struct{})
		var all sync.WaitGroup
		defer all.Wait()
		defer close(stop)
		again := func(f func()) {
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(200 * time.Millisecond):
						f()
					}
				}
			})
		}
		talks := s.line("a", "tcp", netip.MustParseAddr("198.51.100.5"))
		again(func() { talks.client.say("still there") })
		mutters, err := s.Pod("a").Dial("udp", "198.51.100.6:40000", lab.Limit)
		fatal.If(t, err)
		defer mutters.Close()
		again(func() { _, _ = mutters.Write([]byte("anybody there")) })
		ends := s.line("a", "tcp", netip.MustParseAddr("198.51.100.8"))
		again(func() { ends.client.say("for now") })
		again(func() { s.ProbeOf("a", "198.51.100.7:80") })

		moved := time.Now()
		for _, name := range []string{"talks.wild.test", "mutters.wild.test", "ends.wild.test"} {
			s.moves(name, "198.51.100.99")
		}
		s.moves("fails.wild.test", "")
		s.closes("of a name that moved, with unanswered datagrams", "198.51.100.6:80")
		for time.Since(moved) < 12*time.Second {
			s.expect("a", "tcp", "198.51.100.5:80", lab.Answered)
			s.expect("a", "tcp", "198.51.100.7:80", lab.Answered)
			time.Sleep(500 * time.Millisecond)
		}
		ends.conn.Close()
		s.closes("of a name that moved, after its last connection", "198.51.100.8:80")
		s.closes("of a name that moved, after reuseSeconds", "198.51.100.5:80")
		if lasted := time.Since(moved); lasted < 15*time.Second {
			t.Errorf("the address ended after %v, a connection may keep it for 20 s", lasted)
		}
		s.goesOn("that was admitted before", talks)
	})
}

// closes waits for an address to be refused, probing it no more often than the time of a grant.
func (s *inUseStage) closes(what, to string) {
	s.t.Helper()
	for until := time.Now().Add(3 * time.Minute); s.ProbeOf("a", to) != lab.Refused; time.Sleep(time.Second) {
		if time.Now().After(until) {
			s.t.Fatalf("the address %s %s stays open", what, to)
		}
	}
}
