package scenarios

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
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

// badUpstream is an upstream with a fault. Its number is in its addresses, and in the
// address in its false answers.
type badUpstream struct {
	name   string
	behave lab.Behaviour
	down   bool   // without a listener
	alone  ending // of a pod that has no other upstream
	slow   bool   // it does answer, but takes its time
	nosy   bool   // a pod that has a second upstream gets no more than one without
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

// late answers honestly after a while.
func late(d time.Duration) lab.Behaviour {
	reply := func(q *lab.Query) {
		time.Sleep(d)
		_ = q.Reply(honest(q.Msg))
	}
	return lab.Behaviour{UDP: reply, TCP: lab.EachTCP(reply)}
}

// says answers over UDP and TCP with a reply that was changed.
func says(change func(r *dns.Msg)) lab.Behaviour {
	reply := func(q *lab.Query) { _ = q.Send(packet(q.Msg, change)) }
	return lab.Behaviour{UDP: reply, TCP: lab.EachTCP(reply)}
}

// lies is says with an address that the liar wants to have opened.
func lies(number int, change func(r *dns.Msg)) lab.Behaviour {
	return says(func(r *dns.Msg) {
		r.Answer = []dns.RR{a(r.Question[0].Name, 60, victim(number))}
		change(r)
	})
}

// another is a name of the same length as the queried one.
func another(name string) string { return "m" + name[min(1, len(name)-1):] }

// elsewhere is an address that was not queried.
var elsewhere = netip.MustParseAddr("192.0.2.99")

func truncated(q *lab.Query) {
	_ = q.Send(packet(q.Msg, func(r *dns.Msg) { r.Truncated = true }))
}

// forgetful loses the first query for each name, as a bad link does.
func forgetful() lab.Behaviour {
	var known sync.Map
	b := lab.Honest(honest)
	reply := b.UDP
	b.UDP = func(q *lab.Query) {
		if _, again := known.LoadOrStore(dns.CanonicalName(q.Question[0].Name), true); again {
			reply(q)
		}
	}
	return b
}

// noise is no message at all.
func noise(q *lab.Query) {
	for _, wire := range [][]byte{{0}, {0xff, 0xfe}, bytes.Repeat([]byte{0xff}, 700), bytes.Repeat([]byte{0xc0, 0x0c}, 300)} {
		_ = q.Send(wire)
	}
}

// drips begins a reply over TCP that never ends.
func drips(_ *lab.Upstream, c net.Conn) {
	for _, err := c.Write([]byte{0x80}); err == nil; _, err = c.Write([]byte{0}) {
		time.Sleep(100 * time.Millisecond)
	}
}

// rootOnly is silent about every name but the root, which probes ask for.
func rootOnly(q *lab.Query) {
	if q.Question[0].Name == "." {
		_ = q.Reply(honest(q.Msg))
	}
}

// shouts answers in capital letters.
func shouts(r *dns.Msg) {
	q := &r.Question[0]
	q.Name = strings.ToUpper(q.Name)
	if q.Qtype == dns.TypeA {
		r.Answer = []dns.RR{a(q.Name, 60, addressOf(q.Name))}
	}
}

func badUpstreams() []badUpstream {
	return []badUpstream{
		0: {name: "slow", behave: late(900 * time.Millisecond), alone: replies, slow: true},
		1: {name: "too slow", behave: late(3 * time.Second), alone: either},
		2: {name: "one-way", behave: lab.Behaviour{}, alone: fails}, // takes queries and connections, says nothing
		3: {name: "refused by its host", down: true, alone: fails},
		4: {name: "wrong id", behave: lies(4, func(r *dns.Msg) { r.Id ^= 0x5555 }), alone: fails},
		5: {name: "wrong source address", alone: fails, behave: lab.Behaviour{
			UDP: func(q *lab.Query) {
				_ = q.SendFrom(elsewhere, packet(q.Msg, func(r *dns.Msg) { r.Answer = []dns.RR{a(q.Question[0].Name, 60, victim(5))} }))
			}}},
		6: {name: "wrong source port", alone: fails, behave: lab.Behaviour{
			UDP: func(q *lab.Query) {
				_ = q.SendFrom(netip.MustParseAddr(badAddress(6, true)), packet(q.Msg, func(r *dns.Msg) { r.Answer = []dns.RR{a(q.Question[0].Name, 60, victim(6))} }))
			}}},
		7:  {name: "wrong name in the question", alone: fails, behave: lies(7, func(r *dns.Msg) { r.Question[0].Name = another(r.Question[0].Name) })},
		8:  {name: "wrong type in the question", alone: fails, behave: lies(8, func(r *dns.Msg) { r.Question[0].Qtype = dns.TypeTXT })},
		9:  {name: "wrong class in the question", alone: fails, behave: lies(9, func(r *dns.Msg) { r.Question[0].Qclass = dns.ClassCHAOS })},
		10: {name: "the query itself in reply", alone: fails, behave: lies(10, func(r *dns.Msg) { r.Response = false })},
		11: {name: "capital letters", alone: replies, behave: says(shouts)},
		12: {name: "an answer for another name", alone: nothing, nosy: true, behave: lies(12, func(r *dns.Msg) { r.Answer[0].Header().Name = another(r.Question[0].Name) })},
		13: {name: "a lie before the truth", alone: replies, slow: true, behave: lab.Behaviour{
			UDP: func(q *lab.Query) {
				_ = q.Send(packet(q.Msg, func(r *dns.Msg) { r.Id++; r.Answer = []dns.RR{a(q.Question[0].Name, 60, victim(13))} }))
				_ = q.SendFrom(elsewhere, packet(q.Msg, func(r *dns.Msg) { r.Answer = []dns.RR{a(q.Question[0].Name, 60, victim(13))} }))
				time.Sleep(20 * time.Millisecond)
				_ = q.Reply(honest(q.Msg))
			}}},
		14: {name: "always truncated", alone: replies, behave: lab.Behaviour{UDP: truncated, TCP: lab.Honest(honest).TCP}},
		15: {name: "truncated, TCP reset", alone: fails, behave: lab.Behaviour{UDP: truncated, TCP: lab.ResetTCP}},
		16: {name: "truncated, TCP silent", alone: fails, behave: lab.Behaviour{UDP: truncated}},
		17: {name: "truncated, TCP truncated", alone: fails, behave: lab.Behaviour{UDP: truncated, TCP: lab.EachTCP(truncated)}},
		18: {name: "SERVFAIL", alone: fails, behave: says(func(r *dns.Msg) { r.Rcode = dns.RcodeServerFailure })},
		19: {name: "REFUSED", alone: fails, behave: says(func(r *dns.Msg) { r.Rcode = dns.RcodeRefused })},
		20: {name: "SERVFAIL with an address", alone: fails, behave: lies(20, func(r *dns.Msg) { r.Rcode = dns.RcodeServerFailure })},
		21: {name: "noise", alone: fails, behave: lab.Behaviour{UDP: noise, TCP: lab.EachTCP(noise)}},
		22: {name: "truncated, noise over TCP", alone: fails, behave: lab.Behaviour{UDP: truncated, TCP: lab.EachTCP(noise)}},
		23: {name: "loses each query once", alone: replies, slow: true, behave: forgetful()},
		24: {name: "truncated, TCP drips", alone: fails, behave: lab.Behaviour{UDP: truncated, TCP: drips}},
		25: {name: "well but for names", alone: fails, slow: true, behave: lab.Behaviour{UDP: rootOnly}},
	}
}

// badAddress is where the upstream with a number is; one of two, so that what one
// zone learned of it is not known in the other.
func badAddress(number int, alone bool) string {
	if alone {
		return fmt.Sprintf("192.0.2.%d", 100+number)
	}
	return fmt.Sprintf("2001:db8:53::%d", number)
}

// allBad are the numbers of upstreams of which a pod gets nothing.
var allBad = []int{2, 3, 4, 15, 16, 21}

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
	c, err := s.Pod(pod).Dial("udp", netip.AddrPortFrom(lab.Resolver4, 53).String(), lab.Limit)
	if err != nil {
		return nil, 0, err
	}
	defer c.Close()
	conn := &dns.Conn{Conn: c, UDPSize: 1232}
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA)
	began := time.Now()
	if err := c.SetDeadline(began.Add(lab.Limit)); err != nil {
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
