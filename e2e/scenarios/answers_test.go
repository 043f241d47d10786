package scenarios

import (
	"flag"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
)

var answerRounds = flag.Int("answers", 10_000, "how many answers of 8 addresses TestNoFirstPacketIsLost connects to")

// TestNoFirstPacketIsLost asks again and again and connects at once to each
// address of the answer: program, then answer.
func TestNoFirstPacketIsLost(t *testing.T) {
	const perAnswer, workers = 8, 8
	s := newStage(t, lab.Routed)
	// What a pod may ask in a second is another test's concern: a quick machine asks more here.
	var err error
	if s.agent, err = s.NewAgent(agentBinary, t.TempDir(), withLimits(fast)); err != nil {
		t.Fatal(err)
	}
	// Every question has eight addresses of its own out of 131,072.
	var mu sync.Mutex
	next := uint32(0)
	s.outside.SetAnswer(func(query *dns.Msg) *dns.Msg {
		r := new(dns.Msg).SetReply(query)
		if query.Question[0].Qtype != dns.TypeA {
			return r
		}
		mu.Lock()
		defer mu.Unlock()
		for range perAnswer {
			next++
			ip := net.IPv4(198, 18|byte(next>>16&1), byte(next>>8), byte(next))
			r.Answer = append(r.Answer, &dns.A{Hdr: dns.RR_Header{Name: query.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5}, A: ip})
		}
		return r
	})
	s.start(map[string]string{
		"a.yaml": s.Pod("a").Manifest("shop", "a", map[string]string{"app": "client"}),
		"policy.yaml": policy("allow-all-of-it", `
podSelector: {}
ttl: {minSeconds: 1, maxSeconds: 60, graceSeconds: 1}
egress:
- matches: [{pattern: "*.rotating.test"}]
  ports: [{protocol: TCP, port: 80}]`),
	})
	started := time.Now()
	var wg sync.WaitGroup
	var lost, connected sync.Map
	for w := range workers {
		wg.Go(func() {
			good, bad := 0, 0
			for i := w; i < *answerRounds; i += workers {
				r, err := s.ask("a", "udp", fmt.Sprintf("n%d.rotating.test", i), dns.TypeA)
				if err != nil {
					t.Errorf("question %d: %v", i, err)
					return
				}
				addrs := addresses(r)
				if len(addrs) != perAnswer {
					t.Errorf("question %d: %d addresses, rcode %d", i, len(addrs), r.Rcode)
					return
				}
				for _, a := range addrs {
					c, err := s.Pod("a").Dial("tcp", netip.AddrPortFrom(a, 80).String(), 5*time.Second)
					if err != nil {
						bad++
						t.Errorf("question %d, %s: %v", i, a, err)
						continue
					}
					_ = c.(interface{ SetLinger(int) error }).SetLinger(0)
					c.Close()
					good++
				}
			}
			lost.Store(w, bad)
			connected.Store(w, good)
		})
	}
	wg.Wait()
	sum := func(m *sync.Map) (n int) {
		m.Range(func(_, v any) bool { n += v.(int); return true })
		return n
	}
	t.Logf("%d answers, %d connections, %d lost, in %v", *answerRounds, sum(&connected), sum(&lost), time.Since(started).Round(time.Second))
	if got := sum(&connected); got != perAnswer**answerRounds {
		t.Errorf("%d connections of %d", got, perAnswer**answerRounds)
	}
}
