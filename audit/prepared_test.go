package audit

import (
	"math/rand/v2"
	"testing"
)

// TestPreparedLineEqualsEncodedLine: with the prepared part of one query, another query
// with the same answer has the same line as without it.
func TestPreparedLineEqualsEncodedLine(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	others := 0
	for range 3000 {
		first := randomRecord(t, r)
		p := Prepare(&first)
		next, like := first, randomRecord(t, r)
		next.Time, next.Cache, next.TCP, next.Latency = like.Time, like.Cache, like.TCP, like.Latency
		if r.IntN(2) == 0 {
			next.Address = like.Address
			others++
		}
		want := string(appendRecord(nil, "node-1", &next))
		next.Prepared = p
		if got := string(appendRecord(nil, "node-1", &next)); got != want {
			t.Fatalf("prepared\n%swithout\n%s", got, want)
		}
		alone := Record{Time: next.Time, Address: next.Address, Cache: next.Cache, TCP: next.TCP, Latency: next.Latency, Prepared: p}
		if got := string(appendRecord(nil, "node-1", &alone)); got != want {
			t.Fatalf("the fields that count\n%sall of them\n%s", got, want)
		}
	}
	if others == 0 {
		t.Error("no pod asked from another address")
	}
}

// TestPreparedKeepsNothingOfTheRecord: the caller of Prepare may reuse its slices.
func TestPreparedKeepsNothingOfTheRecord(t *testing.T) {
	r := example(t)
	want := string(appendRecord(nil, "node-1", &r))
	p := Prepare(&r)
	r.Answers[0].Openings[0].Ports, r.Answers[1].Blocked, r.Chain[0], r.Matches[0].Path = "any", "node", r.Name, "elsewhere"
	r.Prepared = p
	if got := string(appendRecord(nil, "node-1", &r)); got != want {
		t.Errorf("changed to %s", got)
	}
}
