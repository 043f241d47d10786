package audit

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
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

func TestPreparedIsShared(t *testing.T) {
	var out bytes.Buffer
	l := To(&out, Options{Node: "node-1"})
	r := example(t)
	p := Prepare(&r)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			mine := Record{Time: r.Time, Address: r.Address, Latency: r.Latency, TCP: i%2 == 1, Prepared: p}
			for range 50 {
				l.Write(mine)
			}
		})
	}
	wg.Wait()
	closeLog(t, l)
	udp, tcp := appendRecord(nil, "node-1", &r), []byte(nil)
	r.TCP = true
	tcp = appendRecord(nil, "node-1", &r)
	if bytes.Count(out.Bytes(), udp) != 100 || bytes.Count(out.Bytes(), tcp) != 100 || out.Len() != 100*(len(udp)+len(tcp)) {
		t.Errorf("%d lines by UDP, %d by TCP in %d bytes", bytes.Count(out.Bytes(), udp), bytes.Count(out.Bytes(), tcp), out.Len())
	}
}

// TestDeadlinesArePrepared: a renewed grant needs a new one.
func TestDeadlinesArePrepared(t *testing.T) {
	r := example(t)
	old := Prepare(&r)
	r.Answers[0].Openings = []Opened{{Ports: "tcp/443", Until: noon.Add(time.Hour)}}
	want := string(appendRecord(nil, "node-1", &r))
	r.Prepared = Prepare(&r)
	if got := string(appendRecord(nil, "node-1", &r)); got != want {
		t.Errorf("anew: %s", got)
	}
	r.Prepared = old
	if got := string(appendRecord(nil, "node-1", &r)); got == want {
		t.Error("what was prepared before knows the new deadline: its fields are read, which costs")
	}
}
