package scenarios

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

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
