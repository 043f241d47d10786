package audit

import (
	"math/rand/v2"
	"testing"
)

// repeated is the line of a repeated decision.
func (p *Prepared) repeated(next *Record) string {
	return string(p.appendLine(nil, nodeField("node-1"), next.Time, next.Address, next.Latency))
}

// TestPreparedLineEqualsEncodedLine: with the prepared part of one query, another query
// with the same answer has the same line as without it.
func TestPreparedLineEqualsEncodedLine(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	others := 0
	for range 3000 {
		first := randomRecord(t, r)
		p := (*Log)(nil).Prepare(&first)
		next, like := first, randomRecord(t, r)
		next.Time, next.Cache, next.TCP, next.Latency = like.Time, CacheHit, false, like.Latency
		if r.IntN(2) == 0 {
			next.Address = like.Address
			others++
		}
		want := string(appendRecord(nil, "node-1", &next))
		if got := p.repeated(&next); got != want {
			t.Fatalf("prepared\n%swithout\n%s", got, want)
		}
	}
	if others == 0 {
		t.Error("no pod asked from another address")
	}
}

// TestPreparedKeepsNothingOfTheRecord: the caller of Prepare may reuse its slices.
func TestPreparedKeepsNothingOfTheRecord(t *testing.T) {
	r := example(t)
	r.Cache, r.TCP = CacheHit, false
	want := string(appendRecord(nil, "node-1", &r))
	p := (*Log)(nil).Prepare(&r)
	r.Answers[0].Openings[0].Ports, r.Answers[1].Blocked, r.Chain[0], r.Matches[0].Path = "any", "node", r.Name, "elsewhere"
	if got := p.repeated(&r); got != want {
		t.Errorf("changed to %s", got)
	}
}
