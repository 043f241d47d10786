package proxy

import (
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

func came(arrived <-chan struct{}) bool {
	select {
	case <-arrived:
		return true
	default:
		return false
	}
}

// TestProbe: a query for a pending name arrives, whoever sends it and however many
// he has sent, and counts nowhere.
func TestProbe(t *testing.T) {
	l := newLab(t, labTable)
	config := *l.s.setup.Load().config
	config.Limits.RatePerPod, config.Limits.BurstPerPod = 1, 1
	l.use(&config, l.up)
	at := l.listen()
	before := l.s.Stats()
	for _, from := range []string{"127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.77"} { // the last is no pod
		c := client(t, "udp", from, at)
		probe, arrived, done := l.s.ExpectProbe()
		if err := c.WriteMsg(newQuery(probe, dns.TypeAAAA)); err != nil {
			t.Fatal(err)
		}
		await(t, "the probe does not arrive", func() bool { return came(arrived) })
		done()
		done()
	}
	if after := l.s.Stats(); after != before {
		t.Errorf("it counts: %+v", after)
	}
}

// TestProbeIsNotAnswered: the first reply is that of the query after it.
func TestProbeIsNotAnswered(t *testing.T) {
	l := newLab(t, labTable)
	at := l.listen()
	c := client(t, "udp", "127.0.0.2", at)
	probe, arrived, done := l.s.ExpectProbe()
	defer done()
	if err := c.WriteMsg(newQuery(probe, dns.TypeA)); err != nil {
		t.Fatal(err)
	}
	if r := exchange(t, c, newQuery("www.example.org", dns.TypeA)); r.Rcode != dns.RcodeSuccess || r.Question[0].Name != "www.example.org." {
		t.Errorf("the first reply: %v", r)
	}
	if !came(arrived) {
		t.Error("it did not arrive")
	}
}

// TestOtherQueriesAreNoProbe: other names, other probes, a probe that is done with.
func TestOtherQueriesAreNoProbe(t *testing.T) {
	var s Server
	wire := func(qname string) []byte {
		b, err := newQuery(qname, dns.TypeA).Pack()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	old, oldArrived, oldDone := s.ExpectProbe()
	oldDone()
	if s.probes.take(wire(old)) || came(oldArrived) || s.probes.pending.Load() != nil {
		t.Error("a probe that is done with arrives")
	}
	one, oneArrived, oneDone := s.ExpectProbe()
	two, twoArrived, twoDone := s.ExpectProbe()
	defer oneDone()
	for _, other := range []string{"www.example.org.", ".", probeZone, "a" + one[1:len(one)-1] + "x.", "x." + one, one[1:], old} {
		if other != one && s.probes.take(wire(other)) {
			t.Errorf("%s is taken for a probe", other)
		}
	}
	full := wire(one)
	for n := range headerSize + probeWire {
		if s.probes.take(full[:n]) {
			t.Errorf("%d bytes of a probe are taken for it", n)
		}
	}
	if came(oneArrived) || came(twoArrived) {
		t.Fatal("one arrived that nobody sent")
	}
	if !s.probes.take(wire(two)) || !came(twoArrived) || came(oneArrived) {
		t.Error("not just the second one arrived")
	}
	twoDone()
	for range 2 { // it is sent twice
		if !s.probes.take(full) || !came(oneArrived) {
			t.Error("the first one does not arrive")
		}
	}
}

func TestProbeName(t *testing.T) {
	var s Server
	seen := map[string]bool{}
	for range 100 {
		n, _, done := s.ExpectProbe()
		defer done()
		if seen[n] || !strings.HasSuffix(n, ".self-test.namegate.") || len(wireName(n)) != probeWire {
			t.Fatalf("name %q", n)
		}
		seen[n] = true
		packed := make([]byte, 255)
		end, err := dns.PackDomainName(n, packed, 0, nil, false)
		if err != nil || string(packed[:end]) != wireName(n) {
			t.Errorf("%q on the wire is %q, %v", n, packed[:end], err)
		}
	}
}

// TestProbesTogether: many at once each hear of their own, under the race detector.
func TestProbesTogether(t *testing.T) {
	var s Server
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				n, arrived, done := s.ExpectProbe()
				b, err := newQuery(n, dns.TypeA).Pack()
				if err != nil || !s.probes.take(b) || !came(arrived) {
					t.Errorf("%s does not arrive: %v", n, err)
				}
				done()
			}
		})
	}
	wg.Wait()
	if s.probes.pending.Load() != nil {
		t.Error("there are pending ones at the end")
	}
}

// TestNoProbeCostsNothing: what every packet pays for.
func TestNoProbeCostsNothing(t *testing.T) {
	l := newLab(t, labTable)
	b, err := newQuery("www.example.org", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	take := func() { l.s.probes.take(b) }
	if n := testing.AllocsPerRun(100, take); n != 0 {
		t.Errorf("without a probe %v allocations for each packet", n)
	}
	_, _, done := l.s.ExpectProbe()
	defer done()
	b = append(b, make([]byte, probeWire)...)
	if n := testing.AllocsPerRun(100, take); n != 0 {
		t.Errorf("with one %v allocations for each packet", n)
	}
}
