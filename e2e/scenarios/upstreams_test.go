package scenarios

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// The bounds for clients: the cost of a failover, and the time after which they give up.
const (
	failoverLimit = time.Second
	clientLimit   = 5 * time.Second
)

// goodAddress is the healthy upstream.
const goodAddress = "192.0.2.54"

// upstreamsPolicy allows every name of the scenarios.
const upstreamsPolicy = `
podSelector: {}
egress:
- matches: [{pattern: "**.test"}]
  ports: [{protocol: TCP, port: 80}]`

// upstreamsStage is a stage whose agent has zones of its own, below the root's block.
func upstreamsStage(t *testing.T, zones string) *stage {
	s := newStage(t, lab.Routed)
	s.agentWith(corefile + zones)
	return s
}

// allowTest starts the agent of a stage with the pods a and b.
func (s *stage) allowTest() {
	s.t.Helper()
	s.start(map[string]string{
		"a.yaml":      s.Pod("a").Manifest("shop", "a", nil),
		"b.yaml":      s.Pod("b").Manifest("shop", "b", nil),
		"policy.yaml": policy("upstreams", upstreamsPolicy),
	})
}

// upstream starts an upstream of the world.
func (s *stage) upstream(at string) *lab.Outside {
	s.t.Helper()
	u, err := s.World.ServeDNS(netip.AddrPortFrom(netip.MustParseAddr(at), 53), honest)
	fatal.If(s.t, err)
	s.t.Cleanup(u.Close)
	return u
}

// wasAsked tells whether an upstream was asked for a name.
func wasAsked(u *lab.Outside, name string) bool {
	return slices.ContainsFunc(u.Asked(), func(q string) bool { return strings.EqualFold(q, name+". A") })
}

// patient asks once from a pod, and does not give up before the agent does.
func (s *stage) patient(pod, name string) (r *dns.Msg, took time.Duration, err error) {
	began := time.Now()
	r, err = s.ask(pod, "udp", name, dns.TypeA)
	return r, time.Since(began), err
}

func begin(f func() error) <-chan error {
	end := make(chan error, 1)
	go func() { end <- f() }()
	return end
}

// fails tells whether a client gets a failure in time.
func (s *stage) fails(name string) error {
	r, took, err := s.patient("a", name)
	if err != nil {
		return fmt.Errorf("no reply in %v: %w", took, err)
	}
	if r.Rcode != dns.RcodeServerFailure || len(r.Answer) != 0 {
		return fmt.Errorf("want SERVFAIL, got:\n%v", r)
	}
	return nil
}

// right tells whether the reply has these addresses and no others, and whether
// they are open by now.
func (s *stage) right(r *dns.Msg, want []netip.Addr) error {
	if got := lab.Addresses(r); !slices.Equal(got, want) || r.Rcode != dns.RcodeSuccess {
		return fmt.Errorf("told %v, want %v:\n%v", got, want, r)
	}
	for _, addr := range want {
		if got := s.Pod("a").ProbeFor("tcp", netip.AddrPortFrom(addr, 80), lab.Limit); got != lab.Answered {
			return fmt.Errorf("%s, which the pod was told: %s", addr, got)
		}
	}
	return nil
}

// a is an A record.
func a(owner string, ttl uint32, addr netip.Addr) dns.RR {
	return &dns.A{Hdr: dns.RR_Header{Name: owner, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}, A: addr.AsSlice()}
}

// honest is what every name has: an address that is made of it.
func honest(q *dns.Msg) *dns.Msg {
	r := new(dns.Msg).SetReply(q)
	r.RecursionAvailable = true
	if q.Question[0].Qtype == dns.TypeA {
		r.Answer = []dns.RR{a(q.Question[0].Name, 60, addressOf(q.Question[0].Name))}
	}
	return r
}

// addressOf is the address of nN-M.…: 198.18.N.M.
func addressOf(name string) netip.Addr {
	var n, m int
	if _, err := fmt.Sscanf(strings.ToLower(name), "n%d-%d.", &n, &m); err != nil {
		return netip.AddrFrom4([4]byte{198, 18, 255, 255})
	}
	return netip.AddrFrom4([4]byte{198, 18, byte(n), byte(m)})
}

// TestUpstreamRecovers lets an upstream die in two ways, and recover: one that only
// probes can detect, and one that is the only upstream.
func TestUpstreamRecovers(t *testing.T) {
	t.Parallel()
	const pair, alone = "192.0.2.180", "192.0.2.179"
	zones := "pair.test {\n    forward . " + pair + " " + goodAddress + " {\n        policy sequential\n    }\n}\n" +
		"alone.test {\n    forward . " + alone + " {\n        deadline 10s\n    }\n}\n"
	for _, how := range []string{"silent", "refused"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := upstreamsStage(t, zones)
			first, second, only := s.upstream(pair), s.upstream(goodAddress), s.upstream(alone)
			s.allowTest()
			if s.immediate("n1-1.pair.test"); !wasAsked(first, "n1-1.pair.test") {
				t.Fatal("the first upstream was not asked first")
			}
			for _, u := range []*lab.Outside{first, only} {
				if how == "silent" {
					u.SetAnswer(func(*dns.Msg) *dns.Msg { return nil })
				} else {
					u.Close()
				}
			}
			s.until("the second is asked at once", func(i int) bool {
				return s.immediate(fmt.Sprintf("n2-%d.pair.test", i))
			})
			if !wasAsked(second, "n2-0.pair.test") {
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
			if how == "silent" {
				first.SetAnswer(honest)
				only.SetAnswer(honest)
			} else {
				first = s.upstream(pair)
				s.upstream(alone)
			}
			if err := <-waiting; err != nil {
				t.Errorf("a query from before the upstream came back: %v", err)
			}
			s.until("the first is asked again", func(i int) bool {
				name := fmt.Sprintf("n5-%d.pair.test", i)
				return s.immediate(name) && wasAsked(first, name)
			})
		})
	}
}

// immediate asks from pod a and tells whether the right answer came in no time.
func (s *stage) immediate(name string) bool {
	s.t.Helper()
	r, took, err := s.patient("a", name)
	fatal.If(s.t, err, name, "no reply in", took)
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
