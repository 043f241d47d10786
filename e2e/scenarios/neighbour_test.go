package scenarios

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// floods are what pods a and c do to a shared resource. A flood returns once the pods have all of the
// resource that they can get, and keeps it until the test is over.
var floods = map[string]func(s *stage){
	"queries in flight": func(s *stage) {
		for _, pod := range []string{"a", "c"} {
			s.floods(func(over <-chan struct{}) {
				c, err := s.Pod(pod).Dial("udp", net.JoinHostPort(lab.Resolver4.String(), "53"), lab.Limit)
				fatal.If(s.t, err)
				defer c.Close()
				for i := 0; !ended(over); i++ {
					wire, err := new(dns.Msg).SetQuestion(fmt.Sprintf("%s%d.slow.test.", pod, i), dns.TypeA).Pack()
					fatal.If(s.t, err)
					_, _ = c.Write(wire) // what is lost is the flood's loss
					time.Sleep(2 * time.Millisecond)
				}
			})
		}
		fatal.If(s.t, s.agent.WaitFor("shed queries", func(st lab.Status) bool { return st.Proxy.ShedAll+st.Proxy.ShedPod > 100 }))
	},
	"TCP connections": func(s *stage) {
		for range 40 {
			for _, pod := range []string{"a", "c"} {
				c, err := s.Pod(pod).Dial("tcp", net.JoinHostPort(lab.Resolver4.String(), "53"), lab.Limit)
				fatal.If(s.t, err)
				s.t.Cleanup(func() { _ = c.Close() })
			}
		}
		fatal.If(s.t, s.agent.WaitFor("shed connections", func(st lab.Status) bool { return st.Proxy.ShedConnections >= 16 }))
	},
	"audit lines in memory": func(s *stage) {
		const lines = 4000
		s.floods(func(over <-chan struct{}) {
			c, err := s.Pod("a").Dial("udp", net.JoinHostPort(lab.Resolver4.String(), "53"), lab.Limit)
			fatal.If(s.t, err)
			defer c.Close()
			for i := 0; i < lines && !ended(over); i++ {
				if _, err := lab.Exchange(c, fmt.Sprintf("%d.%s.test", i, strings.Repeat("x", 60)), dns.TypeA, lab.Limit); err != nil {
					s.t.Error(err)
					return
				}
			}
		})
		fatal.If(s.t, s.agent.WaitFor("lines", func(st lab.Status) bool { return st.Audit.Written > lines }))
	},
}

func ended(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

// floods runs a flood beside the test until it is over.
func (s *stage) floods(flood func(over <-chan struct{})) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { flood(over) })
	s.t.Cleanup(func() { close(over); wg.Wait() })
}

// TestNeighbourOfAFlood: while pods take all that they can get of a resource, their neighbour is
// answered, its addresses are open, a change of its policies is in force, and its log is complete.
func TestNeighbourOfAFlood(t *testing.T) {
	t.Parallel()
	eachDataplane(t, lab.Routed, func(t *testing.T, kind nodeKind) {
		for resource, flood := range floods {
			t.Run(strings.ReplaceAll(resource, " ", "_"), func(t *testing.T) {
				s := newStageOf(t, kind)
				s.agentWith(withLimits(fast + `
        queries 128
        queries_per_pod 64
        connections 64
        connections_per_pod 32`))
				s.outside.SetAnswer(func(q *dns.Msg) *dns.Msg {
					if strings.HasSuffix(q.Question[0].Name, ".slow.test.") {
						time.Sleep(time.Second) // the resolver's time, not the test's
					}
					return s.zone.answer(q)
				})
				s.addPod("c", 7)
				files := map[string]string{
					"a.yaml":     s.Pod("a").Manifest("shop", "a", map[string]string{"app": "a"}),
					"c.yaml":     s.Pod("c").Manifest("shop", "c", map[string]string{"app": "a"}),
					"b.yaml":     s.Pod("b").Manifest("other", "b", map[string]string{"app": "b"}),
					"any-a.yaml": policy("any-a", strings.Replace(anyName, "APP", "a", 1)),
					"b-1.yaml":   strings.Replace(policy("b-1", "podSelector: {}\negress: [{matches: [{pattern: \"*.one.test\"}]}]"), "namespace: shop", "namespace: other", 1),
				}
				for i := range 20 {
					s.zone.add(fmt.Sprintf("n%d.one.test. 600 IN A 198.51.100.%d\nn%d.two.test. 600 IN A 198.51.100.%d", i, 10+i, i, 40+i))
				}
				s.zone.add("early.one.test. 600 IN A 198.51.100.5")
				s.start(files)
				s.resolve("b", "early.one.test", dns.TypeA)
				flood(s)
				s.goesOnAsking("one")
				files["b-2.yaml"] = strings.Replace(policy("b-2", "podSelector: {}\negress: [{matches: [{pattern: \"*.two.test\"}]}]"), "namespace: shop", "namespace: other", 1)
				s.apply(files)
				s.goesOnAsking("two")
				out := s.says(0, "early.one.test", "audit", "-n", "other", "--socket", s.agent.Socket())
				for i := range 20 {
					for _, name := range []string{"one", "two"} {
						if want := fmt.Sprintf("n%d.%s.test", i, name); !strings.Contains(out, want) {
							t.Errorf("the log of the neighbour lacks %s", want)
						}
					}
				}
			})
		}
	})
}

// goesOnAsking has pod b ask for the names of a zone, by UDP and TCP, and connect to their addresses.
func (s *stage) goesOnAsking(zone string) {
	s.t.Helper()
	for i := range 20 {
		name := fmt.Sprintf("n%d.%s.test", i, zone)
		for network, ask := range map[string]func() (*dns.Msg, error){
			"udp": func() (*dns.Msg, error) { return s.askAgain("b", name, dns.TypeA) },
			"tcp": func() (*dns.Msg, error) { return s.ask("b", "tcp", name, dns.TypeA) },
		} {
			r, err := ask()
			if err != nil || len(lab.Addresses(r)) != 1 {
				s.t.Fatalf("the neighbour asks for %s by %s: %v, error %v", name, network, r, err)
			}
			s.expect("b", "tcp", net.JoinHostPort(lab.Addresses(r)[0].String(), "80"), lab.Answered)
		}
	}
}

// TestFloodEndsNothing lets one pod send queries as fast as it can: the dead-man switch
// stays on, shed queries do not reach the resolver, and each query of a neighbour is answered.
func TestFloodEndsNothing(t *testing.T) {
	s := newStage(t, lab.Routed)
	s.zone.add(`www.example.org. 60 IN A 198.51.100.1`)
	s.start(map[string]string{
		"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
		"b.yaml": s.Pod("b").Manifest("shop", "b", map[string]string{"app": "client"}),
		"p.yaml": policy("www", allowWWW+"\ndns: {unmatched: NXDomain}"),
	})
	secret := new(dns.Msg).SetQuestion("secret.evil.test.", dns.TypeA)
	wire, err := secret.Pack()
	fatal.If(t, err)
	end := time.Now().Add(8 * time.Second)
	var wg sync.WaitGroup
	for range 2 {
		c, err := s.Pod("a").Dial("udp", lab.Resolver4.String()+":53", lab.Limit)
		fatal.If(t, err)
		defer c.Close()
		wg.Go(func() {
			for time.Now().Before(end) {
				_, _ = c.Write(wire)
			}
		})
	}
	answered, asked := 0, 0
	for time.Now().Before(end) {
		if st, err := s.agent.Status(); err == nil && !st.Enforcer.Intercepting {
			t.Error("interception ended under a flood")
		}
		asked++
		if r, err := s.askAgain("b", "www.example.org", dns.TypeA); err == nil && len(lab.Addresses(r)) == 1 {
			answered++
		}
		time.Sleep(50 * time.Millisecond)
	}
	wg.Wait()
	for _, q := range s.outside.Asked() {
		if strings.HasPrefix(q, "secret.evil.test.") {
			t.Fatal("a withheld name reached the resolver")
		}
	}
	if answered < asked {
		t.Errorf("the neighbour was answered %d times of %d", answered, asked)
	}
}
