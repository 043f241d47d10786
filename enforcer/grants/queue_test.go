package grants

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

func TestOnlyALaterDeadlineIsWritten(t *testing.T) {
	w, p := web(t)
	g := w.grants(p.PodRef, "www.example.org", 600, "192.0.2.1 2001:db8::1")
	ask := func(want int, what string) {
		t.Helper()
		w.sets.ops()
		fatal.If(t, granttest.Grant(context.Background(), w.table, g))
		if got, _ := w.sets.ops(); got != want {
			t.Errorf("%s: %d writes, want %d", what, got, want)
		}
	}
	ask(2, "a new grant")
	ask(0, "the same deadline")
	w.Pass(10 * time.Second)
	g[0].Deadline = g[0].Deadline.Add(-time.Second)
	ask(0, "an earlier deadline")
	g[0].Deadline = g[0].Deadline.Add(10 * time.Second)
	ask(2, "a later deadline")
	if got := w.stays(p, "192.0.2.1"); !near(got, 659*time.Second) {
		t.Errorf("left after the later deadline: %v", got)
	}
	g[0].Addrs = append(g[0].Addrs, addr("192.0.2.9"), addr("192.0.2.9"))
	ask(1, "one address more, twice")
	g = nil
	ask(0, "nothing")
}

func TestRefusedGrantsOpenNothing(t *testing.T) {
	w, p := web(t)
	good := w.grants(p.PodRef, "www.example.org", 60, "192.0.2.1")[0]
	tests := []struct {
		what   string
		change func(g *policy.Grant)
	}{
		{"a pod that is not there", func(g *policy.Grant) { g.Pod.Name = "other" }},
		{"an earlier pod of the name", func(g *policy.Grant) { g.Pod.UID = "before" }},
		{"a name that no policy allows", func(g *policy.Grant) { g.Name = dns("www.example.com") }},
		{"the apex of a pattern", func(g *policy.Grant) { g.Name = dns("example.net") }},
		{"another port set", func(g *policy.Grant) { g.Ports = "tcp/80" }},
		{"every port", func(g *policy.Grant) { g.Ports = policy.AnyPort }},
	}
	before := w.sets.dump()
	for i, test := range tests {
		g := good
		test.change(&g)
		if err := granttest.Grant(context.Background(), w.table, []policy.Grant{g}); err == nil {
			t.Errorf("%s: no error", test.what)
		}
		diff.Error(t, before, w.sets.dump(), test.what, "what the kernel holds")
		diff.Equal(t, uint64(i+1), w.table.Figures().Refused, test.what, "refusals counted")
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := granttest.Grant(over, w.table, []policy.Grant{good}); !errors.Is(err, context.Canceled) {
		t.Errorf("grant for a query that is over: %v", err)
	}
	diff.Error(t, before, w.sets.dump(), "what the kernel holds after a grant for a query that is over")
}

func TestKernelFailureIsAnErrorAndARetryWorks(t *testing.T) {
	for n := 1; n <= 2; n++ {
		w, p := web(t)
		g := w.grants(p.PodRef, "www.example.org", 60, "192.0.2.1 2001:db8::1")
		w.sets.fail(n, false)
		if err := granttest.Grant(context.Background(), w.table, g); !errors.Is(err, errInjected) {
			t.Fatalf("write %d refused: %v", n, err)
		}
		w.sets.instead = nil
		fatal.If(t, granttest.Grant(context.Background(), w.table, g))
		if w.stays(p, "192.0.2.1") == 0 || w.stays(p, "2001:db8::1") == 0 {
			t.Error("the retry opened nothing")
		}
		w.expire(121 * time.Second)
		if n := w.table.Figures().Grants; n != 0 || w.stays(p, "192.0.2.1") != 0 {
			t.Errorf("%d grants after the deadline", n)
		}
	}
}

func TestGrantKeepsNothingOfTheCallers(t *testing.T) {
	w, p := web(t)
	g := w.grants(p.PodRef, "www.example.org", 60, "192.0.2.1")
	fatal.If(t, granttest.Grant(context.Background(), w.table, g))
	g[0].Addrs[0], g[0].By[0] = addr("192.0.2.66"), "changed"
	w.answer(p, "a.example.net", 30, "192.0.2.1")
	if got, want := w.entries(p, false)[0].Comment, "www.example.org until=1700000120 shop/allow www.example.org ; a.example.net until=1700000090 shop/allow *.example.net"; got != want {
		t.Errorf("comment %q, want %q", got, want)
	}
}

func TestNamesOfOneAddressAreBounded(t *testing.T) {
	w, p := web(t)
	w.answer(p, "www.example.org", 3600, "192.0.2.1")
	for i := range 2000 {
		w.answer(p, fmt.Sprintf("n%d.example.net", i), 60, "192.0.2.1")
		w.Pass(100 * time.Millisecond)
	}
	s := w.table.get(grantSet(p.PodRef, https, false))
	kept := s.at(addr("192.0.2.1")).reasons()
	if len(kept) != reasonsMax || kept[0].name != dns("www.example.org") || kept[reasonsMax-1].name != dns("n1999.example.net") {
		t.Errorf("%d names are kept, from %s to %s", len(kept), kept[0].name, kept[len(kept)-1].name)
	}
	if got := w.stays(p, "192.0.2.1"); !near(got, 3460*time.Second) {
		t.Errorf("the longest name's deadline became %v", got)
	}
	w.sets.ops()
	w.answer(p, "late.example.net", 30, "192.0.2.1")
	if got, _ := w.sets.ops(); got != 0 {
		t.Errorf("a name that ends before all that are kept is written %d times", got)
	}
}

func TestReasonsOfOneAddressAreBounded(t *testing.T) {
	var g grant
	for i := range 10 * reasonsMax {
		r := reason{name: dns(fmt.Sprintf("n%d.test", i)), until: at(int64(1000 + i)), by: matchesOf([]string{fmt.Sprintf("shop/p%d", i)})}
		g.add(r, at(0))
	}
	if len(g.reasons()) != reasonsMax || g.until() != at(int64(1000+10*reasonsMax-1)) {
		t.Errorf("%d reasons, the last until %v", len(g.reasons()), g.until())
	}
	g.add(reason{name: dns("late.test"), until: at(5000)}, at(4000))
	diff.Equal(t, 1, len(g.reasons()), "reasons are kept though all but one have ended")
}

// An answer with 16 addresses that rules of five port sets open goes to the kernel at
// once, not address by address.
func TestAnAnswerIsOneWrite(t *testing.T) {
	w := newNode(t)
	p := pod("web", "allow")
	var rules []string
	for i := range 5 {
		rules = append(rules, fmt.Sprintf("tcp/%d www.example.org", 443+i))
	}
	w.apply([]policy.Pod{p}, pol("allow", rules...))
	var answer []string
	for i := range 8 {
		answer = append(answer, fmt.Sprintf("192.0.2.%d 2001:db8::%d", i+1, i+1))
	}
	g := w.grants(p.PodRef, "www.example.org", 60, strings.Join(answer, " "))
	fatal.If(t, granttest.Grant(context.Background(), w.table, g))
	entries := 0
	for _, op := range w.sets.writes[0] {
		entries += len(op.Grants)
	}
	if w.sets.count() != 1 || len(w.sets.writes[0]) != 10 || entries != 80 {
		t.Errorf("%d writes, the first of %d ops with %d entries, want 1 of 10 with 80", w.sets.count(), len(w.sets.writes[0]), entries)
	}
	if err := granttest.Grant(context.Background(), w.table, g); err != nil || w.sets.count() != 1 {
		t.Errorf("the same answer again, from the cache, is written again: %d writes, %v", w.sets.count(), err)
	}
}

// TestSetsOfAPodAreAddedInPlace: the sets that a pod has already are not copied for each new one.
func TestSetsOfAPodAreAddedInPlace(t *testing.T) {
	w, p := gated(t)
	of := w.table.pod(p.PodRef)
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const sets = 2000
	for i := range sets {
		for range w.table.setsOf(of, p.PodRef, target{policy.RuleID(fmt.Sprintf("a%016x", i)), https}, false) {
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / sets; each > 4096 {
		t.Errorf("%d bytes were allocated for each new set", each)
	}
}
