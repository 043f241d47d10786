package scenarios

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// edgesPolicy is refuseOthers with a name whose grants last 2 s, and further ones
// with an address each.
const edgesPolicy = `
podSelector: {matchLabels: {app: client}}
ttl: {minSeconds: 1, maxSeconds: 600, graceSeconds: 1, inUse: Expire}
egress:
- matches: [{name: www.example.org}, {name: short.example.org}, {pattern: "*.wild.example.org"}]
  ports: [{protocol: TCP, port: 80}]
dns: {unmatched: Refuse}`

// Destinations at the edges that a pod may always reach, and ones that it never may.
const edgesAllowed, edgesDenied = "198.51.100.1:80", "198.51.100.2:80"

// startsIn is how soon an agent is up whatever state its surroundings are in.
const startsIn = time.Minute

// edgesStage has a pod that may connect to what www.example.org has, by an agent
// with a Corefile. The world's resolver knows all names of upgradeAnswer too.
func edgesStage(t *testing.T, kind nodeKind, corefile string, args ...string) *stage {
	s := newStageOf(t, kind)
	s.zone.add(`
		www.example.org. 600 IN A 198.51.100.1
		other.example.org. 60 IN A 198.51.100.2
		short.example.org. 1 IN A 198.51.100.3`)
	s.outside.SetAnswer(s.edges)
	s.agentWith(corefile, args...)
	s.startClient(policy("edges", edgesPolicy))
	s.resolve("a", "www.example.org", dns.TypeA)
	s.expect("a", "tcp", edgesAllowed, lab.Answered)
	return s
}

func (s *stage) edges(query *dns.Msg) *dns.Msg {
	if dns.IsSubDomain("wild.example.org.", query.Question[0].Name) {
		return upgradeAnswer(query)
	}
	return s.zone.answer(query)
}

// askedFor is what became of the questions of a pod that asks all the time.
type askedFor struct {
	sent, lost int
	rcodes     map[int]int
	// gap is the longest time without any answer, slowest the longest duration of one,
	// both counted in queries sent meanwhile: a machine that stands still sends none.
	gap, slowest time.Duration
}

// questioner asks over one socket, and waits for nothing.
type questioner struct {
	c    net.Conn
	mu   sync.Mutex
	open map[uint16]int // how many had been asked before
	last int            // how many had been asked at the last answer
	askedFor
}

// since is the time that the questions after the first so many took.
func (q *questioner) since(asked int) time.Duration { return time.Duration(q.sent-asked) * askEvery }

// askEvery is how often it does.
const askEvery = 20 * time.Millisecond

// unnoticed is how long answers may take while the agent works: a hundred times the usual
// time.
const unnoticed = 4 * time.Second

// keepsAsking has a pod ask for names in turn, until the returned function is called.
// It returns after the first answer, so that the answers before an event are counted, or
// without one when a client would wait no longer. When no answer has come for as long as a
// client waits, the open questions are lost.
func (s *stage) keepsAsking(pod string, names ...string) (stop func() askedFor) {
	s.t.Helper()
	c, err := s.Pod(pod).Dial("udp", netip.AddrPortFrom(lab.Resolver4, 53).String(), lab.Limit)
	fatal.If(s.t, err)
	q := &questioner{c: c, open: map[uint16]int{}, askedFor: askedFor{rcodes: map[int]int{}}}
	over, done := make(chan struct{}), make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			case <-time.After(askEvery):
				q.ask(uint16(i), names[i%len(names)])
			}
		}
	})
	go func() { defer close(done); q.hear() }()
	for until := time.Now().Add(clientLimit); !q.answered() && time.Now().Before(until); {
		time.Sleep(askEvery / 4)
	}
	return func() askedFor {
		close(over)
		sender.Wait()
		left := q.waits()
		for until := time.Now().Add(clientLimit); left > 0 && time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
			if now := q.waits(); now < left {
				left, until = now, time.Now().Add(clientLimit)
			}
		}
		_ = c.Close()
		<-done
		q.gap = max(q.gap, q.since(q.last))
		q.lost = len(q.open)
		return q.askedFor
	}
}

// answered tells whether there has been an answer.
func (q *questioner) answered() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.rcodes) > 0
}

func (q *questioner) ask(id uint16, name string) {
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA)
	m.Id = id
	wire, err := m.Pack()
	if err != nil {
		panic(err)
	}
	q.mu.Lock()
	q.open[id] = q.sent
	q.sent++
	q.mu.Unlock()
	_, _ = q.c.Write(wire) // refused while no server listens: then it is lost
}

func (q *questioner) hear() {
	buf := make([]byte, dns.MaxMsgSize)
	for {
		n, err := q.c.Read(buf)
		var r dns.Msg
		switch {
		case err == nil && r.Unpack(buf[:n]) == nil:
			q.note(&r)
		case errors.Is(err, net.ErrClosed):
			return
		}
	}
}

func (q *questioner) note(r *dns.Msg) {
	q.mu.Lock()
	defer q.mu.Unlock()
	sent, waits := q.open[r.Id]
	if !waits {
		return
	}
	delete(q.open, r.Id)
	q.rcodes[r.Rcode]++
	q.gap, q.slowest = max(q.gap, q.since(q.last)), max(q.slowest, q.since(sent))
	q.last = q.sent
}

func (q *questioner) waits() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.open)
}

// disturbed lets something happen while a pod probes every 10 ms and asks all the
// time. No allowed connection may fail, no denied one pass, and never may all
// answers stay away for longer than the gap.
func (s *stage) disturbed(what string, gap time.Duration, names []string, happen func()) askedFor {
	s.t.Helper()
	probes, questions := s.vigil("a", []string{edgesAllowed}, []string{edgesDenied}), s.keepsAsking("a", names...)
	happen()
	asked := questions()
	probes(what)
	s.t.Logf("%s: %d questions, %d lost, slowest %v, longest gap %v, rcodes %v", what, asked.sent, asked.lost, asked.slowest, asked.gap, asked.rcodes)
	if asked.gap > gap {
		s.t.Errorf("%s: no answers for %v, at most %v are right", what, asked.gap, gap)
	}
	return asked
}

// moves gives names other addresses, which no client has queried by then.
func (s *stage) moves(ttl uint32, to string, names ...string) {
	for _, n := range names {
		s.zone.say(n, func(query *dns.Msg) *dns.Msg {
			r := new(dns.Msg).SetReply(query)
			if query.Question[0].Qtype == dns.TypeA {
				r.Answer = []dns.RR{a(query.Question[0].Name, ttl, netip.MustParseAddr(to))}
			}
			return r
		})
	}
}

// TestNoUpstreamAnswers: while every upstream is silent interception stays on, pods
// get SERVFAIL in time and connect as ever, and an agent that starts comes up. Once
// the upstream is back so are the answers.
func TestNoUpstreamAnswers(t *testing.T) {
	t.Parallel()
	s := edgesStage(t, routed, corefile)
	others := []string{"other.example.org"} // refused by the agent, answered by a resolver
	asked := s.disturbed("silent upstreams", unnoticed, others, func() {
		s.outside.SetAnswer(func(*dns.Msg) *dns.Msg { return nil })
		began := time.Now()
		for _, name := range []string{"www.example.org", "b1.wild.example.org"} {
			if err := s.fails(name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for time.Since(began) < 2*switchTime {
			if st := s.status(); !st.Enforcer.Intercepting {
				t.Error("silent upstreams turn interception off")
			}
			time.Sleep(50 * time.Millisecond)
		}
		s.outside.SetAnswer(s.edges)
		s.until("names are answered again", func(int) bool {
			r, _, err := s.patient("a", "b2.wild.example.org")
			return err == nil && r.Rcode == dns.RcodeSuccess
		})
		s.expect("a", "tcp", "198.18.0.2:80", lab.Answered)
	})
	if asked.lost > 0 || asked.rcodes[dns.RcodeRefused] != asked.sent {
		t.Errorf("not every question was for the agent: %+v", asked)
	}

	s.outside.SetAnswer(func(*dns.Msg) *dns.Msg { return nil })
	s.disturbed("a start with silent upstreams", outageLimit+startsIn, others, func() {
		fatal.If(t, s.agent.Stop(syscall.SIGKILL))
		began := time.Now()
		fatal.If(t, s.agent.Start())
		if took := time.Since(began); took > startsIn {
			t.Errorf("the agent came up after %v", took)
		}
	})
}
