package scenarios

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

var answerCount = flag.Int("answers", 10_000, "how many answers of 8 addresses TestNoFirstPacketIsLost connects to")

const (
	rotatingAnswer = 8
	rotatingAddrs  = 2000
	rotatingTTL    = 5
	// rotatingGrant is how long an address stays open after its last answer: so long
	// that a connection at once is not too late on any machine, and so short that
	// addresses end all the time while they are given again.
	rotatingGrant = 2 * time.Second
	// oftenAsked names are asked for again and again, so that the cache answers.
	oftenAsked = 500
)

// rotatingWorld answers each question with another 8 of 2,000 addresses.
func rotatingWorld(query *dns.Msg) *dns.Msg {
	r := new(dns.Msg).SetReply(query)
	if query.Question[0].Qtype != dns.TypeA {
		return r
	}
	for first, i := rand.IntN(rotatingAddrs), 0; i < rotatingAnswer; i++ {
		// Steps of a number that shares no factor with 2,000: no address twice.
		n := (first + i*rotatingStep) % rotatingAddrs
		r.Answer = append(r.Answer, &dns.A{
			Hdr: dns.RR_Header{Name: query.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: rotatingTTL},
			A:   net.IPv4(198, 18, byte(n>>8), byte(n)),
		})
	}
	return r
}

const rotatingStep = 239

// rotation is what became of the answers.
type rotation struct {
	mu                              sync.Mutex
	answered                        map[netip.Addr]time.Time // last
	connections, lost, late, reborn int
}

// note takes an answer in before its addresses are dialled.
func (r *rotation) note(addrs []netip.Addr, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range addrs {
		if last, ok := r.answered[a]; ok && at.Sub(last) > rotatingGrant+200*time.Millisecond {
			r.reborn++
		}
		r.answered[a] = at
	}
}

func (r *rotation) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

// dial connects to an address of an answer.
func (r *rotation) dial(s *stage, a netip.Addr, answered time.Time) error {
	c, err := s.Pod("a").Dial("tcp", netip.AddrPortFrom(a, 80).String(), 5*time.Second)
	switch {
	case err == nil:
		_ = c.(interface{ SetLinger(int) error }).SetLinger(0)
		c.Close()
		r.count(&r.connections)
		return nil
	case time.Since(answered) > rotatingGrant/2:
		r.count(&r.late) // the grant may have ended: that is not at once
		return nil
	}
	r.count(&r.lost)
	return err
}

// TestNoFirstPacketIsLost asks again and again and connects at once to each
// address of the answer: program, then answer. Answers rotate, end and come again.
func TestNoFirstPacketIsLost(t *testing.T) {
	eachDataplane(t, lab.Routed, noFirstPacketIsLost)
}

func noFirstPacketIsLost(t *testing.T, kind nodeKind) {
	const workers = 8
	s := newStageOf(t, kind)
	// A pod's rate is another test's concern: a fast machine asks more here.
	s.agentWith(withLimits(fast))
	s.outside.SetAnswer(rotatingWorld)
	s.startClient(policy("allow-all-of-it", fmt.Sprintf(`
podSelector: {}
ttl: {minSeconds: 1, maxSeconds: %d, graceSeconds: 0, inUse: Expire}
egress:
- matches: [{pattern: "*.rotating.test"}]
  ports: [{protocol: TCP, port: 80}]`, int(rotatingGrant.Seconds()))))
	started := time.Now()
	r := &rotation{answered: map[netip.Addr]time.Time{}}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < *answerCount; i += workers {
				name := fmt.Sprintf("n%d.rotating.test", i)
				if i/workers%2 == 1 {
					name = fmt.Sprintf("often%d.rotating.test", rand.IntN(oftenAsked))
				}
				m, err := s.ask("a", "udp", name, dns.TypeA)
				at := time.Now()
				if err != nil {
					t.Errorf("question %d: %v", i, err)
					return
				}
				addrs := lab.Addresses(m)
				if len(addrs) != rotatingAnswer {
					t.Errorf("question %d: %d addresses, rcode %d", i, len(addrs), m.Rcode)
					return
				}
				r.note(addrs, at)
				for _, a := range addrs {
					if err := r.dial(s, a, at); err != nil {
						t.Errorf("question %d, %s: %v", i, a, err)
					}
				}
			}
		})
	}
	wg.Wait()
	st, err := s.agent.Status()
	fatal.If(t, err)
	fmt.Printf("answers: %d of %d addresses each out of %d, TTL %d s, grants of %v: %d connections, %d lost, %d too late to count, %d addresses given again after their end, %d evicted, in %v\n",
		*answerCount, rotatingAnswer, rotatingAddrs, rotatingTTL, rotatingGrant, r.connections, r.lost, r.late, r.reborn, st.Enforcer.Evicted, time.Since(started).Round(time.Second))
	printFigure("answers.lost_connections", r.lost, "connections", fmt.Sprintf("%d answers", *answerCount))
	if want := rotatingAnswer * *answerCount; r.connections+r.late != want || r.late > want/2 {
		t.Errorf("%d connections of %d, %d too late", r.connections, want, r.late)
	}
	if *answerCount >= 1000 && r.reborn == 0 {
		t.Error("no address ended during the run")
	}
	if st.Enforcer.Evicted > 0 {
		t.Errorf("%d grants ended to make room", st.Enforcer.Evicted)
	}
}
