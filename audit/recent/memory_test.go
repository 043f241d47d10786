package recent

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/policytest"
)

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// place is an address as one pod sees it.
type place struct {
	pod  policy.PodRef
	addr netip.Addr
}

func addr(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}) }

// record is a decision about one address.
func record(pod, n string, v audit.Verdict, at time.Time, answers ...audit.Answer) *audit.Record {
	return &audit.Record{Time: at, Pod: policytest.Ref(pod), Name: policytest.Name(n), Type: 1, Verdict: v, Answers: answers}
}

// TestMemory: answers that opened nothing, and their decisions.
func TestMemory(t *testing.T) {
	open := []audit.Opened{{Ports: "tcp/443"}}
	for _, c := range []struct {
		what    string
		r       *audit.Record
		seen    string // the name under which 198.18.0.1 was, "" for none
		decided bool
	}{
		{"unmatched", record("a", "x.test", audit.Unmatched, start, audit.Answer{Addr: addr(1)}), "x.test", true},
		{"granted", record("a", "x.test", audit.Allowed, start, audit.Answer{Addr: addr(1), Openings: open}), "", false},
		{"allowed without an address", record("a", "x.test", audit.Allowed, start), "", false},
		{"one of two granted", record("a", "x.test", audit.Allowed, start, audit.Answer{Addr: addr(2), Openings: open}, audit.Answer{Addr: addr(1), Blocked: "node"}), "x.test", true},
		{"blocked", record("a", "x.test", audit.Blocked, start, audit.Answer{Addr: addr(1), Blocked: "node"}), "x.test", true},
		{"refused", record("a", "x.test", audit.Refused, start), "", true},
		{"the kernel did not take it", record("a", "x.test", audit.Failed, start, audit.Answer{Addr: addr(1)}), "x.test", true},
		{"written within IPv6", record("a", "x.test", audit.Unmatched, start, audit.Answer{Addr: netip.AddrFrom16(addr(1).As16())}), "x.test", true},
		{"renewed, with an address that no pod was told", record("a", "x.test", audit.Renewed, start, audit.Answer{Addr: addr(2), Openings: open}, audit.Answer{Addr: addr(1)}), "", false},
		{"another pod's", record("b", "x.test", audit.Unmatched, start, audit.Answer{Addr: addr(1)}), "", false},
		{"by way of an allowed name", &audit.Record{
			Time: start, Pod: policytest.Ref("a"), Name: policytest.Name("x.test"), Via: policytest.Name("service.test"), Verdict: audit.Unmatched, Answers: []audit.Answer{{Addr: addr(1)}},
		}, "service.test", true},
	} {
		m := NewMemory()
		m.Note(c.r)
		seen := m.Seen(policytest.Ref("a"), addr(1))
		if c.seen == "" && len(seen) > 0 || c.seen != "" && (len(seen) != 1 || seen[0].Name != policytest.Name(c.seen) || !seen[0].Asked.Equal(start)) {
			t.Errorf("%s: seen %+v", c.what, seen)
		}
		d, decided := m.Asked(policytest.Ref("a"), policytest.Name("x.test"))
		if decided != c.decided || decided && (d.Verdict != c.r.Verdict || !d.Asked.Equal(start) || len(d.Answers) != len(c.r.Answers)) {
			t.Errorf("%s: decided %v, %+v", c.what, decided, d)
		}
	}
}

func TestTheNewestNameFirst(t *testing.T) {
	m := NewMemory()
	for i := range namesOfAddress + 3 {
		m.Note(record("a", fmt.Sprintf("n%d.test", i), audit.Unmatched, start.Add(time.Duration(i)), audit.Answer{Addr: addr(1), TTL: uint32(i)}))
	}
	m.Note(record("a", "n8.test", audit.Unmatched, start.Add(time.Hour), audit.Answer{Addr: addr(1), Blocked: "pod"}))
	seen := m.Seen(policytest.Ref("a"), addr(1))
	if len(seen) != namesOfAddress || seen[0].Name != policytest.Name("n8.test") || seen[0].Blocked != "pod" || seen[1].Name != policytest.Name("n10.test") || seen[1].TTL != 10 {
		t.Errorf("%+v", seen)
	}
	m.Note(record("b", "late.test", audit.Unmatched, start.Add(2*time.Hour), audit.Answer{Addr: addr(1)}))
	if all := m.SeenByAnybody(addr(1)); len(all) != namesOfAddress+1 || all[0].Pod != policytest.Ref("b") || all[1].Name != policytest.Name("n8.test") {
		t.Errorf("%+v", all)
	}
	if other := m.SeenByAnybody(addr(2)); len(other) != 0 {
		t.Errorf("%+v", other)
	}
}

// TestMemoryLikeTwin: of each pod the most recent addresses are kept.
func TestMemoryLikeTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	m := NewMemory()
	var order []place // the newest last
	pods := []string{"a", "b", "c"}
	for range 30000 {
		p := place{policytest.Ref(pods[min(r.IntN(6), 2)]), addr(r.IntN(3000))}
		m.Note(&audit.Record{Time: start, Pod: p.pod, Name: policytest.Name("x.test"), Verdict: audit.Unmatched, Answers: []audit.Answer{{Addr: p.addr}}})
		order = append(order, p)
	}
	kept, ofPod := map[place]bool{}, map[policy.PodRef]int{}
	for _, p := range slices.Backward(order) {
		if !kept[p] && ofPod[p.pod] < sightings.Each {
			kept[p] = true
			ofPod[p.pod]++
		}
	}
	for _, pod := range pods {
		for i := range 3000 {
			p := place{policytest.Ref(pod), addr(i)}
			if got := len(m.Seen(p.pod, p.addr)) > 0; got != kept[p] {
				t.Fatalf("%s %s is remembered: %v", pod, p.addr, got)
			}
		}
	}
	if n, _ := m.seen.Len(); n != len(kept) || n != 3*sightings.Each {
		t.Errorf("%d are remembered, want %d", n, len(kept))
	}
}

// TestMemoryOfOnePodIsBounded: a pod with endless queries evicts none of another pod's.
func TestMemoryOfOnePodIsBounded(t *testing.T) {
	m := NewMemory()
	m.Note(record("a", "x.test", audit.Unmatched, start, audit.Answer{Addr: addr(1)}))
	for i := range 3 * sightings.All {
		m.Note(record("b", "x.test", audit.Unmatched, start, audit.Answer{Addr: addr(i)}))
		m.Note(record("b", fmt.Sprintf("n%d.test", i), audit.Refused, start))
	}
	if len(m.Seen(policytest.Ref("a"), addr(1))) != 1 {
		t.Error("a's address is forgotten")
	}
	if _, ok := m.Asked(policytest.Ref("a"), policytest.Name("x.test")); !ok {
		t.Error("a's decision is forgotten")
	}
	if _, ok := m.Asked(policytest.Ref("b"), policytest.Name("n1.test")); ok {
		t.Error("b's first decision is still known")
	}
	if n, _ := m.seen.Len(); len(m.Seen(policytest.Ref("b"), addr(3*sightings.All-1))) != 1 || n != 1+sightings.Each {
		t.Errorf("%d are remembered", n)
	}
	// Each of many pods has a share, whatever the others have.
	for pod := range 40 {
		for i := range sightings.Each {
			m.Note(record(fmt.Sprint("p", pod), "x.test", audit.Unmatched, start, audit.Answer{Addr: addr(i)}))
		}
	}
	for i := range sightings.Least {
		m.Note(record("late", "x.test", audit.Unmatched, start, audit.Answer{Addr: addr(i)}))
	}
	if n, _ := m.seen.Len(); len(m.Seen(policytest.Ref("late"), addr(0))) != 1 || len(m.Seen(policytest.Ref("a"), addr(1))) != 1 || n > sightings.All+40*sightings.Least {
		t.Errorf("%d are remembered, of late %d", n, len(m.Seen(policytest.Ref("late"), addr(0))))
	}
	// Pods that are gone leave nothing behind.
	for i := range 2 * maxPods {
		m.Note(record(fmt.Sprint("gone", i), "x.test", audit.Unmatched, start, audit.Answer{Addr: addr(1)}))
	}
	if n, pods := m.seen.Len(); n != maxPods || pods != maxPods {
		t.Errorf("%d pods, %d addresses", pods, n)
	}
}

// TestGrantedCostsNothing: the records that a busy node makes are not kept.
func TestGrantedCostsNothing(t *testing.T) {
	m := NewMemory()
	granted := record("a", "x.test", audit.Allowed, start, audit.Answer{Addr: addr(1), Openings: []audit.Opened{{Ports: "any"}}})
	if n := testing.AllocsPerRun(100, func() { m.Note(granted) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
