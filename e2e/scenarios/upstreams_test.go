package scenarios

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/e2e/fatal"
	"github.com/namegate/namegate/e2e/lab"
)

// The bounds for clients: the cost of a failover, and the time after which they give up.
const (
	failoverLimit = time.Second
	clientLimit   = 5 * time.Second
)

// ending is the reply to a pod if all upstreams are bad.
type ending string

const (
	replies ending = "an answer"
	fails   ending = "SERVFAIL"
	either  ending = "an answer or SERVFAIL"
	nothing ending = "no address"
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
	var err error
	if s.agent, err = s.NewAgent(agentBinary, t.TempDir(), corefile+zones); err != nil {
		t.Fatal(err)
	}
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

// upstream adds an upstream to the world.
func (s *stage) upstream(at string, b lab.Behaviour) *lab.Upstream {
	s.t.Helper()
	u := s.NewUpstream(netip.MustParseAddr(at), b)
	fatal.If(s.t, u.Up())
	s.t.Cleanup(u.Down)
	return u
}

// patient asks once from a pod, and does not give up before the agent does.
func (s *stage) patient(pod, name string) (r *dns.Msg, took time.Duration, err error) {
	return s.asksOnce(pod, name, lab.Limit)
}

// asksOnce asks once from a pod, and waits that long for the answer.
func (s *stage) asksOnce(pod, name string, wait time.Duration) (r *dns.Msg, took time.Duration, err error) {
	c, err := s.Pod(pod).Dial("udp", netip.AddrPortFrom(lab.Resolver4, 53).String(), wait)
	if err != nil {
		return nil, 0, err
	}
	defer c.Close()
	conn := &dns.Conn{Conn: c, UDPSize: 1232}
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA)
	began := time.Now()
	if err := c.SetDeadline(began.Add(wait)); err != nil {
		return nil, 0, err
	}
	if err := conn.WriteMsg(m); err != nil {
		return nil, 0, err
	}
	for {
		r, err := conn.ReadMsg()
		if err != nil || r.Id == m.Id {
			return r, time.Since(began), err
		}
	}
}

// TestUpstreams gives a zone a bad upstream that is to be asked first and a
// healthy one, and another zone the bad one alone.
func TestUpstreams(t *testing.T) {
	t.Parallel()
	bad := badUpstreams()
	zones := ""
	for n := range bad {
		zones += fmt.Sprintf("pair%d.test {\n    forward . %s %s {\n        policy sequential\n    }\n}\n", n, badAddress(n, false), goodAddress)
		zones += fmt.Sprintf("alone%d.test {\n    forward . %s\n}\n", n, badAddress(n, true))
	}
	zones += "none.test {\n    forward ."
	for _, n := range allBad {
		zones += " " + badAddress(n, true)
	}
	s := upstreamsStage(t, zones+"\n}\n")
	s.upstream(goodAddress, lab.Honest(honest))
	for n, b := range bad {
		if !b.down {
			s.upstream(badAddress(n, false), b.behave)
			s.upstream(badAddress(n, true), b.behave)
		}
	}
	s.allowTest()
	sniffer, err := s.World.Sniff("eth0")
	fatal.If(t, err)
	defer sniffer.Close()
	// They wait most of the time, so all do at once.
	began := map[string]<-chan error{}
	for n, b := range bad {
		began[b.name+" beside a healthy one"] = begin(func() error { return s.beside(n, b) })
		began[b.name+" alone"] = begin(func() error { return s.alone(n, b) })
	}
	began["all of several"] = begin(func() error { return s.fails("n99-1.none.test") })
	for _, name := range slices.Sorted(maps.Keys(began)) {
		t.Run(name, func(t *testing.T) {
			if err := <-began[name]; err != nil {
				t.Error(err)
			}
		})
	}
	s.nothingOpened(t, sniffer, len(bad))
}

func begin(f func() error) <-chan error {
	end := make(chan error, 1)
	go func() { end <- f() }()
	return end
}

// beside asks a row of names: after the first, most are faster than a failover, and
// each is right.
func (s *stage) beside(n int, b badUpstream) error {
	var errs []error
	var all []time.Duration
	for i := range 6 {
		name := fmt.Sprintf("n%d-%d.pair%d.test", n, i, n)
		r, took, err := s.patient("a", name)
		if err != nil {
			return fmt.Errorf("question %d: no reply in %v: %w", i, took, err)
		}
		want := []netip.Addr{addressOf(name)}
		if b.nosy {
			want = nil
		}
		errs = append(errs, s.right(r, want))
		if i > 0 { // that somebody is silent, over TCP too, takes the first a while to tell
			all = append(all, took)
		}
	}
	limit := failoverLimit
	if b.slow {
		limit += failoverLimit / 2 // its own time is no failover's
	}
	slices.Sort(all)
	if all[len(all)/2] >= limit {
		errs = append(errs, fmt.Errorf("questions took %v, want most of them in less than %v", all, limit))
	}
	return errors.Join(errs...)
}

// alone asks once.
func (s *stage) alone(n int, b badUpstream) error {
	name := fmt.Sprintf("n%d-%d.alone%d.test", 100+n, 1, n)
	r, took, err := s.patient("a", name)
	if err != nil {
		return fmt.Errorf("no reply in %v: %w", took, err)
	}
	failed := r.Rcode == dns.RcodeServerFailure || r.Rcode == dns.RcodeRefused && b.name == "REFUSED"
	if b.alone == fails || b.alone == either && failed {
		if !failed || len(r.Answer) != 0 {
			return fmt.Errorf("want %s, got:\n%v", b.alone, r)
		}
		return nil
	}
	want := []netip.Addr{addressOf(name)}
	if b.alone == nothing {
		want = nil
	}
	return s.right(r, want)
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
	if got := addresses(r); !slices.Equal(got, want) || r.Rcode != dns.RcodeSuccess {
		return fmt.Errorf("told %v, want %v:\n%v", got, want, r)
	}
	for _, addr := range want {
		if got := s.Pod("a").ProbeFor("tcp", netip.AddrPortFrom(addr, 80), lab.Limit); got != lab.Answered {
			return fmt.Errorf("%s, which the pod was told: %s", addr, got)
		}
	}
	return nil
}

// nothingOpened asserts that no false address is in the kernel's sets, and that no packet
// reached it.
func (s *stage) nothingOpened(t *testing.T, sniffer *lab.Sniffer, many int) {
	t.Helper()
	sets := s.prints("ipset list", "nft list sets")
	if !strings.Contains(sets, addressOf("n11-0.").String()) {
		t.Errorf("the sets have none of what was granted:\n%s", sets)
	}
	for n := range many {
		v := victim(n)
		if strings.Contains(sets, v.String()+" ") {
			t.Errorf("%s, which upstream %d lied about, is in a set", v, n)
		}
		if got := s.Pod("a").ProbeFor("tcp", netip.AddrPortFrom(v, 80), lab.PatienceFor(lab.Refused)); got != lab.Refused {
			t.Errorf("%s, which upstream %d lied about: %s", v, n, got)
		}
	}
	s.settle(sniffer)
	for n := range many {
		if got := sniffer.Saw(victim(n)); got != 0 {
			t.Errorf("%d packets reached %s", got, victim(n))
		}
	}
}
