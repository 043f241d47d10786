package traffic

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/short"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func dns(at time.Time, workload, name, verdict string) *audit.Line {
	return &audit.Line{
		V: 1, Kind: audit.KindDNS, Time: at, Node: "node-1", Verdict: verdict, Pod: audit.LinePod{Namespace: "shop", Name: "cart-1", Workload: workload},
		Question: &audit.LineQuestion{Name: name},
	}
}

func flow(at time.Time, address, verdict string, names ...audit.LineName) *audit.Line {
	return &audit.Line{
		V: 1, Kind: audit.KindFlow, Time: at, Node: "node-1", Verdict: verdict, Pod: audit.LinePod{Namespace: "shop", Name: "cart-1"},
		Destination: &audit.LineDestination{Address: address, Port: 443}, Names: names, Reason: audit.ReasonUnmatched, Policies: []string{"shop/base"}, Count: 1,
	}
}

// TestEdges: what edge a line is of.
func TestEdges(t *testing.T) {
	matched := dns(noon, "app=cart", "www.example.org", "allowed")
	matched.Matches = []audit.LineMatch{{Policy: "shop/base", Path: "spec.egress[0].matches[0]"}, {Policy: "shop/base", Path: "spec.egress[0].matches[1]"}}
	would := dns(noon, "app=cart", "www.example.org", "allowed")
	would.Would, would.Policy, would.Tier, would.Rule = "denied", "no-pastes", "Admin", "pastes"
	limited := dns(noon, "app=cart", "x.example.org", "refused")
	limited.Limit = "types"
	failed := dns(noon, "", "x.example.org", "failed")
	failed.Error = "no upstream answered"
	host := flow(noon, "198.51.100.80", "would-deny")
	host.Pod, host.Host, host.Policies = audit.LinePod{}, &audit.LineHost{}, nil
	repeated := flow(noon, "192.0.2.10", "denied", audit.LineName{Name: "www.example.org", Match: &audit.LineMatch{Policy: "shop/other"}}, audit.LineName{Name: "b.test"})
	repeated.Count, repeated.Last = 30, noon.Add(40*time.Second)
	for what, c := range map[string]struct {
		line *audit.Line
		want Edge
	}{
		"allowed":  {matched, Edge{Workload: "app=cart", Namespace: "shop", Name: "www.example.org", Verdict: Allowed, Count: 1, PerSecond: 0.1, Last: noon, Policies: []string{"shop/base"}}},
		"renewed":  {dns(noon, "app=cart", "a.test", "renewed"), Edge{Workload: "app=cart", Namespace: "shop", Name: "a.test", Verdict: Allowed, Count: 1, PerSecond: 0.1, Last: noon}},
		"would":    {would, Edge{Workload: "app=cart", Namespace: "shop", Name: "www.example.org", Verdict: WouldDeny, Count: 1, PerSecond: 0.1, Last: noon, Policies: []string{"no-pastes"}}},
		"nothing":  {dns(noon, "app=cart", "a.test", "unmatched"), Edge{Workload: "app=cart", Namespace: "shop", Name: "a.test", Verdict: Unmatched, Count: 1, PerSecond: 0.1, Last: noon}},
		"limited":  {limited, Edge{Workload: "app=cart", Namespace: "shop", Name: "x.example.org", Verdict: Refused, Count: 1, PerSecond: 0.1, Last: noon, Reason: "types"}},
		"failed":   {failed, Edge{Workload: "Pod/cart-1", Namespace: "shop", Name: "x.example.org", Verdict: Failed, Count: 1, PerSecond: 0.1, Last: noon, Reason: "no upstream answered"}},
		"blocked":  {dns(noon, "app=cart", "a.test", "blocked"), Edge{Workload: "app=cart", Namespace: "shop", Name: "a.test", Verdict: Denied, Count: 1, PerSecond: 0.1, Last: noon}},
		"name":     {dns(noon, "app=cart", "a.test", "denied"), Edge{Workload: "app=cart", Namespace: "shop", Name: "a.test", Verdict: Denied, Count: 1, PerSecond: 0.1, Last: noon}},
		"flow":     {flow(noon, "192.0.2.10", "denied"), Edge{Workload: "Pod/cart-1", Namespace: "shop", Name: "192.0.2.10", Verdict: Denied, Count: 1, PerSecond: 0.1, Last: noon, Policies: []string{"shop/base"}, Reason: "unmatched"}},
		"repeated": {repeated, Edge{Workload: "Pod/cart-1", Namespace: "shop", Name: "www.example.org", Verdict: Denied, Count: 30, PerSecond: 0.5, Last: noon.Add(40 * time.Second), Policies: []string{"shop/other"}, Reason: "unmatched"}},
		"node":     {host, Edge{Workload: "Node/node-1", Node: "node-1", Name: "198.51.100.80", Verdict: WouldDeny, Count: 1, PerSecond: 0.1, Last: noon, Reason: "unmatched"}},
	} {
		tr := New()
		tr.Add(c.line, noon)
		got := tr.Since(0)
		c.want.ID = "e1"
		if d := cmp.Diff([]Edge{c.want}, got.Edges); d != "" || !got.Full || got.Total != 1 {
			t.Errorf("%s: -want +got\n%s", what, d)
		}
	}
	tr := New()
	tr.Add(flow(noon, "192.0.2.10", "would-allow"), noon)
	if got := tr.Since(0); len(got.Edges) != 0 {
		t.Errorf("connections are counted twice: %+v", got.Edges)
	}
	ingress := flow(noon, "10.1.0.10", "denied")
	ingress.Source = &audit.LineSource{Address: "10.1.0.20"}
	tr.Add(ingress, noon)
	if got := tr.Since(0); len(got.Edges) != 0 {
		t.Errorf("a connection to the pod is one of it: %+v", got.Edges)
	}
}

// TestSlidingHour: counts leave the hour and the rate, and an edge without counts ends.
func TestSlidingHour(t *testing.T) {
	tr := New()
	tr.Add(dns(noon, "app=cart", "a.test", "allowed"), noon)
	tr.Add(dns(noon.Add(time.Minute), "app=cart", "a.test", "allowed"), noon.Add(time.Minute))
	v := tr.Since(0)
	if e := v.Edges[0]; e.Count != 2 || e.PerSecond != 0.1 {
		t.Errorf("%+v", e)
	}
	if again := tr.Since(v.Version); len(again.Edges) != 0 || again.Full {
		t.Errorf("nothing has changed, and %+v is told", again)
	}
	tr.Advance(noon.Add(71 * time.Second))
	v = tr.Since(v.Version)
	if len(v.Edges) != 1 || v.Edges[0].PerSecond != 0 {
		t.Errorf("after ten seconds: %+v", v)
	}
	tr.Advance(noon.Add(time.Hour))
	v = tr.Since(v.Version)
	if len(v.Edges) != 1 || v.Edges[0].Count != 1 {
		t.Errorf("after an hour: %+v", v)
	}
	id := v.Edges[0].ID
	tr.Advance(noon.Add(61 * time.Minute))
	if v = tr.Since(v.Version); len(v.Edges) != 0 || !slices.Equal(v.Gone, []string{id}) || v.Total != 0 || len(tr.ofWorkload) != 0 || len(tr.active) != 0 {
		t.Errorf("after the last count: %+v", v)
	}
	old := New()
	old.Add(dns(noon.Add(-time.Hour), "app=cart", "a.test", "allowed"), noon)
	if v := old.Since(0); v.Total != 0 {
		t.Errorf("a line of an hour ago is counted: %+v", v)
	}
	old.Add(dns(noon.Add(time.Hour), "app=cart", "a.test", "allowed"), noon) // the node's clock is ahead
	old.Advance(noon.Add(time.Hour))
	if v := old.Since(0); v.Total != 0 {
		t.Errorf("a line from the future stays beyond its hour: %+v", v)
	}
}

// TestRateOfMinutes: a line that counts a minute is a rate for the minute after it.
func TestRateOfMinutes(t *testing.T) {
	tr := New()
	l := flow(noon, "192.0.2.10", "denied")
	l.Count, l.Last = 120, noon.Add(59*time.Second)
	tr.Add(l, noon.Add(time.Minute))
	for after, want := range map[time.Duration]float64{61 * time.Second: 2, 119 * time.Second: 2, 121 * time.Second: 0} {
		one := New()
		one.Add(l, noon.Add(time.Minute))
		one.Advance(noon.Add(after))
		diff.Equal(t, want, one.Since(0).Edges[0].PerSecond, after, "after the first", "a second")
	}
}

// TestBounds: beyond the bounds lines are counted as left out, and other workloads have room.
func TestBounds(t *testing.T) {
	tr := New()
	for i := range maxOfWorkload + 10 {
		tr.Add(dns(noon, "app=noisy", fmt.Sprintf("n%d.test", i), "unmatched"), noon)
	}
	tr.Add(dns(noon, "app=quiet", "a.test", "allowed"), noon)
	if v := tr.Since(0); v.Total != maxOfWorkload+1 || v.Left != 10 {
		t.Errorf("%d edges, %d lines left", v.Total, v.Left)
	}
	for w := range 12 {
		for i := range maxOfWorkload {
			tr.Add(dns(noon, fmt.Sprintf("app=w%d", w), fmt.Sprintf("n%d.test", i), "allowed"), noon)
		}
	}
	if v := tr.Since(0); v.Total != MaxEdges || v.Left != 10+12*maxOfWorkload+maxOfWorkload+1-MaxEdges {
		t.Errorf("%d edges, %d lines left", v.Total, v.Left)
	}
	v := tr.Since(0)
	tr.Advance(noon.Add(2 * time.Hour))
	if late := tr.Since(v.Version); !late.Full || late.Total != 0 {
		t.Errorf("a reader that is %d ends behind is not told to forget all: full=%v, %d gone", MaxEdges, late.Full, len(late.Gone))
	}
}

// TestHits: DNS decisions count for their matches for an hour.
func TestHits(t *testing.T) {
	tr := New()
	l := dns(noon, "app=cart", "a.test", "allowed")
	l.Matches = []audit.LineMatch{{Policy: "shop/base", Path: "spec.egress[0].matches[0]"}, {Policy: "a cluster policy"}}
	tr.Add(l, noon)
	tr.Add(l, noon.Add(time.Second))
	if n, last := tr.Hits("shop/base", "spec.egress[0].matches[0]"); n != 2 || !last.Equal(noon) {
		t.Errorf("%d, %v", n, last)
	}
	if n, _ := tr.Hits("a cluster policy", ""); n != 0 {
		t.Errorf("a policy without a name has %d", n)
	}
	if n, _ := tr.Hits("shop/base", "spec.egress[0].matches[1]"); n != 0 {
		t.Errorf("another match has %d", n)
	}
	tr.Advance(noon.Add(time.Hour))
	if n, _ := tr.Hits("shop/base", "spec.egress[0].matches[0]"); n != 0 || len(tr.matches) != 0 {
		t.Errorf("after an hour: %d", n)
	}
}

// TestTwin compares random lines with a twin that keeps all of them and counts anew, and a reader of
// changes with one who reads all.
func TestTwin(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	tr, now := New(), noon
	var lines []*audit.Line
	seen, version := map[string]Edge{}, uint64(0)
	for range short.Rounds(1_000, 3_000, 10_000) {
		now = now.Add(time.Duration(r.IntN(15)) * time.Second)
		if r.IntN(50) == 0 {
			now = now.Add(time.Duration(r.IntN(50)) * time.Minute)
		}
		if r.IntN(4) > 0 {
			l := dns(now.Add(-time.Duration(r.IntN(5))*time.Second), fmt.Sprintf("app=w%d", r.IntN(3)), fmt.Sprintf("n%d.test", r.IntN(5)), []string{"allowed", "unmatched"}[r.IntN(2)])
			tr.Add(l, now)
			lines = append(lines, l)
		} else {
			tr.Advance(now)
		}
		c := tr.Since(version)
		if version = c.Version; c.Full {
			clear(seen)
		}
		for _, e := range c.Edges {
			seen[e.ID] = e
		}
		for _, id := range c.Gone {
			delete(seen, id)
		}
		want := map[string]Edge{}
		for _, l := range lines {
			if minuteOf(l.Time) <= minuteOf(now)-hour {
				continue
			}
			k := l.Pod.Workload + " " + l.Question.Name + " " + VerdictOf(l)
			e := want[k]
			e.Count++
			if l.Time.Unix() > now.Unix()-seconds {
				e.PerSecond += 0.1
			}
			if !l.Time.Before(e.Last) {
				e.Last = l.Time
			}
			want[k] = e
		}
		got := map[string]Edge{}
		for _, e := range seen {
			got[e.Workload+" "+e.Name+" "+e.Verdict] = Edge{Count: e.Count, PerSecond: e.PerSecond, Last: e.Last}
		}
		near := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 })
		if d := cmp.Diff(want, got, near); d != "" {
			t.Fatalf("seed %d, at %s: -want +got\n%s", seed, now, d)
		}
	}
}

// BenchmarkAdd adds lines of 1,000 workloads and 5,000 names, and tells the memory of all edges.
func BenchmarkAdd(b *testing.B) {
	var before, after runtime.MemStats
	lines := make([]*audit.Line, 0, MaxEdges)
	for i := range MaxEdges {
		lines = append(lines, dns(noon, fmt.Sprintf("app=w%d", i%1000), fmt.Sprintf("n%d.test", (i*7+i/1000)%5000), "allowed"))
	}
	runtime.GC()
	runtime.ReadMemStats(&before)
	tr, now := New(), noon
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i++; i%1000 == 0 {
			now = now.Add(time.Millisecond)
		}
		tr.Add(lines[i%len(lines)], now)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(lines)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(max(tr.Since(0).Total, 1)), "bytes/edge")
	b.ReportMetric(float64(tr.Since(0).Total), "edges")
}

// BenchmarkSince is a look of one page at a full Traffic in which 1,000 edges changed.
func BenchmarkSince(b *testing.B) {
	tr, now := New(), noon
	line := func(i int) *audit.Line {
		return dns(now, fmt.Sprintf("app=w%d", i%1000), fmt.Sprintf("n%d.test", (i*7+i/1000)%5000), "allowed")
	}
	for i := range MaxEdges {
		tr.Add(line(i), now)
	}
	version := tr.Since(0).Version
	for b.Loop() {
		b.StopTimer()
		now = now.Add(time.Second)
		for i := range 1000 {
			tr.Add(line(i), now)
		}
		b.StartTimer()
		tr.Advance(now)
		version = tr.Since(version).Version
	}
}
