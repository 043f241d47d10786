package scenarios

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/e2e/lab"
)

// TestUpstreamRecovers lets an upstream die in two ways, and recover: one that only
// probes can detect, and one that is the only upstream.
func TestUpstreamRecovers(t *testing.T) {
	t.Parallel()
	const pair, alone = "192.0.2.180", "192.0.2.179"
	zones := "pair.test {\n    forward . " + pair + " " + goodAddress + " {\n        policy sequential\n    }\n}\n" +
		"alone.test {\n    forward . " + alone + " {\n        deadline 10s\n    }\n}\n"
	dies := map[string]func(u *lab.Upstream){
		"silent":  func(u *lab.Upstream) { u.Behave(lab.Behaviour{}) },
		"refused": (*lab.Upstream).Down,
	}
	lives := map[string]func(u *lab.Upstream) error{
		"silent":  func(u *lab.Upstream) error { u.Behave(lab.Honest(honest)); return nil },
		"refused": (*lab.Upstream).Up,
	}
	for how, die := range dies {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := upstreamsStage(t, zones)
			first, only := s.upstream(pair, lab.Honest(honest)), s.upstream(alone, lab.Honest(honest))
			second := s.upstream(goodAddress, lab.Honest(honest))
			s.allowTest()
			if s.immediate("n1-1.pair.test"); first.Times("n1-1.pair.test") == 0 {
				t.Fatal("the first upstream was not asked first")
			}
			die(first)
			die(only)
			s.until("the second is asked at once", func(i int) bool {
				return s.immediate(fmt.Sprintf("n2-%d.pair.test", i))
			})
			if second.Times("n2-0.pair.test") == 0 {
				t.Error("the second upstream was not asked")
			}
			if err := s.fails("n3-1.alone.test"); err != nil {
				t.Errorf("nobody is left: %v", err)
			}
			// A query that waits while the upstream comes back is answered.
			waiting := begin(func() error {
				r, _, err := s.patient("a", "n4-1.alone.test")
				if err != nil {
					return err
				}
				return s.right(r, []netip.Addr{addressOf("n4-1.")})
			})
			s.until("the waiting query is on its way", func(int) bool { return s.status().Proxy.InFlight > 0 })
			for _, u := range []*lab.Upstream{first, only} {
				fatal.If(t, lives[how](u))
			}
			if err := <-waiting; err != nil {
				t.Errorf("a query from before the upstream came back: %v", err)
			}
			s.until("the first is asked again", func(i int) bool {
				name := fmt.Sprintf("n5-%d.pair.test", i)
				return s.immediate(name) && first.Times(name) > 0
			})
		})
	}
}

// immediate asks from pod a and tells whether the right answer came in no time.
func (s *stage) immediate(name string) bool {
	s.t.Helper()
	r, took, err := s.patient("a", name)
	if err != nil {
		s.t.Fatalf("%s: no reply in %v: %v", name, took, err)
	}
	if err := s.right(r, []netip.Addr{addressOf(name)}); err != nil {
		s.t.Errorf("%s: %v", name, err)
	}
	return took < failoverLimit/2
}

// until tries until it is so.
func (s *stage) until(what string, ok func(try int) bool) {
	s.t.Helper()
	end := time.Now().Add(lab.Limit)
	for i := 0; !ok(i); i++ {
		if time.Now().After(end) {
			s.t.Fatalf("not within %v: %s", lab.Limit, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *stage) status() lab.Status {
	s.t.Helper()
	st, err := s.agent.Status()
	fatal.If(s.t, err)
	return st
}

// gate is an upstream's behaviour that keeps the queries for some names until it
// is opened.
type gate struct {
	lab.Behaviour
	open func()
}

func newGate(keeps func(name string) bool) gate {
	opened := make(chan struct{})
	reply := func(q *lab.Query) {
		if keeps(dns.CanonicalName(q.Question[0].Name)) {
			<-opened
		}
		_ = q.Reply(honest(q.Msg))
	}
	return gate{lab.Behaviour{UDP: reply, TCP: lab.EachTCP(reply)}, sync.OnceFunc(func() { close(opened) })}
}

// gatedZone has one upstream that is given much time: nothing is asked twice.
const gatedZone = `
line.test {
    forward . 192.0.2.181 {
        timeout 4s
        deadline 10s
    }
}
`

// TestSlowNamesDelayNoOtherQuery has names under way that are not answered, and
// asks for others on the same socket or connection, and from a neighbour.
func TestSlowNamesDelayNoOtherQuery(t *testing.T) {
	t.Parallel()
	const quick = 20
	for network, slow := range map[string]int{"udp": 60, "tcp": 10} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			s := upstreamsStage(t, gatedZone)
			g := newGate(func(name string) bool { return strings.HasPrefix(name, "n1-") })
			defer g.open()
			u := s.upstream("192.0.2.181", g.Behaviour)
			s.allowTest()
			c, err := s.Pod("a").Dial(network, netip.AddrPortFrom(lab.Resolver4, 53).String(), lab.Limit)
			fatal.If(t, err)
			defer c.Close()
			conn := &dns.Conn{Conn: c}
			fatal.If(t, c.SetDeadline(time.Now().Add(lab.Limit)))
			want := map[string]bool{}
			say := func(name string) {
				want[name] = true
				fatal.If(t, conn.WriteMsg(new(dns.Msg).SetQuestion(name, dns.TypeA)))
			}
			for i := range slow {
				say(fmt.Sprintf("n1-%d.line.test.", i))
			}
			s.until("all slow names are asked", func(int) bool { return len(u.Asked()) >= slow })
			for i := range quick {
				say(fmt.Sprintf("n2-%d.line.test.", i))
			}
			s.collect(conn, want, quick, "n2-")
			if r, _, err := s.patient("b", "n3-1.line.test"); err != nil || len(addresses(r)) != 1 {
				t.Errorf("a neighbour: %v, error %v", r, err)
			}
			g.open()
			s.collect(conn, want, slow, "n1-")
		})
	}
}

// collect reads replies, each right, to names that begin with a word and to no others.
func (s *stage) collect(conn *dns.Conn, want map[string]bool, many int, prefix string) {
	s.t.Helper()
	for range many {
		r, err := conn.ReadMsg()
		if err != nil {
			s.t.Fatalf("waiting for names that begin with %s: %v; missing %d", prefix, err, len(want))
		}
		name := r.Question[0].Name
		if !strings.HasPrefix(name, prefix) || !want[name] {
			s.t.Fatalf("%s is answered, one with %s is due", name, prefix)
		}
		delete(want, name)
		if err := s.right(r, []netip.Addr{addressOf(name)}); err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUpstreamIsAskedOnce has many ask the same at one time, each spelling it in
// another way.
func TestUpstreamIsAskedOnce(t *testing.T) {
	t.Parallel()
	const many = 24
	s := upstreamsStage(t, gatedZone)
	g := newGate(func(name string) bool { return strings.HasSuffix(name, ".line.test.") })
	defer g.open()
	u := s.upstream("192.0.2.181", g.Behaviour)
	s.allowTest()
	var conns []*dns.Conn
	var names []string
	for i := range many {
		pod, network, name := "ab"[i%2:i%2+1], "udp", []byte("n9-9.line.test.")
		if i%4 == 3 {
			network = "tcp"
		}
		for bit, at := range []int{0, 5, 6, 7, 10} { // letters
			if i>>bit&1 == 1 {
				name[at] -= 'a' - 'A'
			}
		}
		c, err := s.Pod(pod).Dial(network, netip.AddrPortFrom(lab.Resolver4, 53).String(), lab.Limit)
		fatal.If(t, err)
		defer c.Close()
		fatal.If(t, c.SetDeadline(time.Now().Add(lab.Limit)))
		conns, names = append(conns, &dns.Conn{Conn: c}), append(names, string(name))
	}
	for i, c := range conns { // the upstream has some seconds from the first one
		fatal.If(t, c.WriteMsg(new(dns.Msg).SetQuestion(names[i], dns.TypeA)))
	}
	s.until("all but one wait for the one", func(int) bool { return s.status().Proxy.Coalesced >= many-1 })
	g.open()
	for i, conn := range conns {
		r, err := conn.ReadMsg()
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		if r.Question[0].Name != names[i] {
			t.Errorf("client %d asked for %s and is answered for %s", i, names[i], r.Question[0].Name)
		}
		if err := s.right(r, []netip.Addr{addressOf("n9-9.")}); err != nil {
			t.Errorf("client %d: %v", i, err)
		}
	}
	if got := u.Times("n9-9.line.test"); got != 1 {
		t.Errorf("the upstream was asked %d times, want once", got)
	}
	for _, pod := range []string{"a", "b"} {
		s.expect(pod, "tcp", "198.18.9.9:80", lab.Answered)
	}
}

// TestUpstreamCannotBeGuessed looks at the ids and ports of queries as an upstream sees
// them: each query's id is random, and a port is used for a limited time.
func TestUpstreamCannotBeGuessed(t *testing.T) {
	t.Parallel()
	const many = 6000
	needed(t, "dnsperf")
	s := newStage(t, lab.Routed)
	var err error
	if s.agent, err = s.NewAgent(agentBinary, t.TempDir(), withLimits(fast)+"line.example {\n    forward . 192.0.2.181\n}\n"); err != nil {
		t.Fatal(err)
	}
	u := s.upstream("192.0.2.181", lab.Honest(honest))
	s.allowTest()
	data, err := s.questions(many, func(i int) string { return fmt.Sprintf("q%d.line.example", i) })
	fatal.If(t, err)
	if _, err := s.Pod("a").Run("dnsperf", "-s", lab.Resolver4.String(), "-d", data, "-n", "1", "-c", "1", "-q", "30"); err != nil {
		t.Fatal(err)
	}
	ids, ports, steps := map[uint16]bool{}, map[uint16]bool{}, 0
	asked := u.Asked()
	for i, q := range asked {
		ids[q.ID], ports[q.Port] = true, true
		if i > 0 && q.ID-asked[i-1].ID < 1024 {
			steps++ // one in 64 at random
		}
	}
	if len(asked) < many || len(ids) < many*4/5 || steps > many/16 {
		t.Errorf("%d queries have %d ids, with %d small steps from one to the next", len(asked), len(ids), steps)
	}
	if len(ports) < 2 {
		t.Errorf("%d queries came from %d ports", len(asked), len(ports))
	}
	for p := range ports {
		if ports[p+1] && ports[p+2] && ports[p+3] {
			t.Errorf("ports are handed out in a row from %d", p)
		}
	}
}
