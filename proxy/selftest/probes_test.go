package selftest

import (
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// none tells whether no probe is pending.
func (p *Probes) none() bool {
	for range p.pending.Range {
		return false
	}
	return true
}

func came(arrived <-chan struct{}) bool {
	select {
	case <-arrived:
		return true
	default:
		return false
	}
}

// TestOtherQueriesAreNoProbe: other names, other probes, a probe that is done with.
func TestOtherQueriesAreNoProbe(t *testing.T) {
	var s Probes
	wire := func(qname string) []byte {
		b, err := new(dns.Msg).SetQuestion(dns.Fqdn(qname), dns.TypeA).Pack()
		fatal.If(t, err)
		return b
	}
	old, oldArrived, oldDone := s.Expect()
	oldDone()
	if s.Take(wire(old)) || came(oldArrived) || !s.none() {
		t.Error("a probe that is done with arrives")
	}
	one, oneArrived, oneDone := s.Expect()
	two, twoArrived, twoDone := s.Expect()
	defer oneDone()
	for _, other := range []string{"www.example.org.", ".", probeZone, "a" + one[1:len(one)-1] + "x.", "x." + one, one[1:], old} {
		if other != one && s.Take(wire(other)) {
			t.Errorf("%s is taken for a probe", other)
		}
	}
	full := wire(one)
	for n := range headerSize + probeWire {
		if s.Take(full[:n]) {
			t.Errorf("%d bytes of a probe are taken for it", n)
		}
	}
	if came(oneArrived) || came(twoArrived) {
		t.Fatal("one arrived that nobody sent")
	}
	if !s.Take(wire(two)) || !came(twoArrived) || came(oneArrived) {
		t.Error("not just the second one arrived")
	}
	twoDone()
	for range 2 { // it is sent twice
		if !s.Take(full) || !came(oneArrived) {
			t.Error("the first one does not arrive")
		}
	}
}

func TestProbeName(t *testing.T) {
	var s Probes
	seen := map[string]bool{}
	for range 100 {
		n, _, done := s.Expect()
		defer done()
		if seen[n] || !strings.HasSuffix(n, ".self-test.namegate.") {
			t.Fatalf("name %q", n)
		}
		seen[n] = true
		packed := make([]byte, 255)
		end, err := dns.PackDomainName(n, packed, 0, nil, false)
		if _, pending := s.pending.Load(string(packed[:end])); err != nil || !pending || end != probeWire {
			t.Errorf("%q is not pending as %q, %v", n, packed[:end], err)
		}
	}
}

// TestConcurrentProbes: many at once each hear of their own, under the race detector.
func TestConcurrentProbes(t *testing.T) {
	var s Probes
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				n, arrived, done := s.Expect()
				b, err := new(dns.Msg).SetQuestion(dns.Fqdn(n), dns.TypeA).Pack()
				if err != nil || !s.Take(b) || !came(arrived) {
					t.Errorf("%s does not arrive: %v", n, err)
				}
				done()
			}
		})
	}
	wg.Wait()
	if !s.none() {
		t.Error("there are pending ones at the end")
	}
}

// TestNoProbeCostsNothing: what every packet pays for.
func TestNoProbeCostsNothing(t *testing.T) {
	var s Probes
	b, err := new(dns.Msg).SetQuestion(dns.Fqdn("www.example.org"), dns.TypeA).Pack()
	fatal.If(t, err)
	take := func() { s.Take(b) }
	diff.Equal(t, 0, testing.AllocsPerRun(100, take), "allocations for each packet without a probe")
	_, _, done := s.Expect()
	defer done()
	b = append(b, make([]byte, probeWire)...)
	diff.Equal(t, 0, testing.AllocsPerRun(100, take), "allocations for each packet with one")
}
