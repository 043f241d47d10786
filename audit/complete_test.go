package audit

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/testclock"
)

// writeAll writes records of a pod, and returns when the recent lines have them.
func writeAll(t *testing.T, l *Log, pod string, count int) {
	t.Helper()
	before := l.Written()
	for range count {
		l.Write(of(t, pod))
	}
	fatal.Await(t, "the lines are written", func() bool { return l.Written() == before+uint64(count) })
}

// complete checks for how long a log is complete, where a negative time is unknown.
func complete(t *testing.T, l *Log, namespace string, want time.Duration) {
	t.Helper()
	if got, known := l.Complete(namespace); known != (want >= 0) || known && got != want {
		t.Errorf("namespace %q: complete for %v, known %v, want %v", namespace, got, known, want)
	}
}

// TestCompleteSinceTheBegin: lines before Begin may be another agent's.
func TestCompleteSinceTheBegin(t *testing.T) {
	clock := testclock.New(noon)
	l := To(io.Discard, Options{Now: clock.Now})
	clock.Pass(time.Hour)
	l.Filter(Filter{Sample: 2}) // which begins nothing
	l.Filter(Filter{})
	complete(t, l, "shop", -1)
	l.Begin()
	clock.Pass(time.Minute)
	writeAll(t, l, "cart", 10)
	complete(t, l, "shop", time.Minute)
	complete(t, l, "", time.Minute)
	closeLog(t, l)
}

// TestCompleteLikeTheLines: after each minute of lines, the last minute of which a line is
// missing is the begin of the complete time.
func TestCompleteLikeTheLines(t *testing.T) {
	const perMinute = 70 // less than a batch
	clock := testclock.New(noon)
	l := To(io.Discard, Options{Now: clock.Now})
	l.Begin()
	dropped := 0
	for minute := 1; minute <= 60; minute++ {
		clock.Pass(time.Minute)
		r := of(t, "cart")
		r.Error = strings.Repeat("x", minute) + "."
		before := l.Written()
		for range perMinute {
			l.Write(r)
		}
		fatal.Await(t, "the lines are written", func() bool { return l.Written() == before+perMinute })
		recent := recent(l)
		for dropped < minute && bytes.Count(recent, []byte(`"`+strings.Repeat("x", dropped+1)+`."`)) < perMinute {
			dropped++
		}
		complete(t, l, "shop", time.Duration(minute-dropped)*time.Minute)
		complete(t, l, "", time.Duration(minute-dropped)*time.Minute)
		complete(t, l, "bank", time.Duration(minute)*time.Minute) // another's lines cost it nothing
	}
	if dropped < 20 {
		t.Errorf("only lines of %d minutes were dropped", dropped)
	}
	closeLog(t, l)
}

// TestCompleteAfterLostLines: lines that the queue refuses are in no view of the log, and
// those behind a stuck write are not yet. A repeated decision is its pod's too.
func TestCompleteAfterLostLines(t *testing.T) {
	t.Run("new", func(t *testing.T) { completeAfterLostLines(t, (*Log).Write) })
	t.Run("repeated", func(t *testing.T) {
		completeAfterLostLines(t, func(l *Log, r Record) { l.Repeat(l.Prepare(&r), r.Time, r.Address, r.Latency) })
	})
}

func completeAfterLostLines(t *testing.T, write func(*Log, Record)) {
	clock := testclock.New(noon)
	g := newGated()
	l := To(g, Options{Now: clock.Now, Queue: 1})
	l.Begin()
	clock.Pass(time.Minute)
	write(l, of(t, "stuck"))
	g.next(t)
	clock.Pass(stuckAfter)
	complete(t, l, "shop", time.Minute+stuckAfter)
	clock.Pass(time.Nanosecond)
	complete(t, l, "shop", -1)
	other := of(t, "waits")
	other.Pod.Namespace = "bank"
	write(l, other)
	write(l, of(t, "refused"))
	clock.Pass(time.Minute)
	close(g.open)
	fatal.Await(t, "two lines are written", func() bool { return l.Written() == 2 })
	clock.Pass(time.Hour)
	complete(t, l, "shop", time.Hour)
	complete(t, l, "", time.Hour)
	complete(t, l, "bank", time.Hour+2*time.Minute+stuckAfter+time.Nanosecond)
	closeLog(t, l)
}

// TestCompleteDespiteTheDisk: lines that only the disk lost are in the recent lines.
func TestCompleteDespiteTheDisk(t *testing.T) {
	clock := testclock.New(noon)
	l := To(&failing{}, Options{Now: clock.Now})
	l.Begin()
	clock.Pass(time.Minute)
	l.Write(of(t, "lost"))
	closeLog(t, l)
	diff.MustEqual(t, 1, l.Dropped(), "dropped")
	complete(t, l, "shop", time.Minute)
}

// TestCompleteWithFilter: a filter that omits decisions of a namespace makes its lines
// incomplete, and a changed filter ends what was complete before.
func TestCompleteWithFilter(t *testing.T) {
	var decisions []string
	for _, v := range Verdicts() {
		if v != WouldDeny.String() && v != WouldAllow.String() {
			decisions = append(decisions, v)
		}
	}
	for _, c := range []struct {
		filter    Filter
		shop, all bool
	}{
		{Filter{}, true, true},
		{Filter{Sample: 1}, true, true},
		{Filter{Sample: 2}, false, false},
		{Filter{Verdicts: decisions}, true, true},
		{Filter{Verdicts: decisions[1:]}, false, false},
		{Filter{Verdicts: []string{"denied", "would-deny"}}, false, false},
		{Filter{Namespaces: []string{"shop", "bank"}}, true, false},
		{Filter{Namespaces: []string{"bank"}}, false, false},
		{Filter{Namespaces: []string{"shop"}, Sample: 9}, false, false},
	} {
		clock := testclock.New(noon)
		want := func(known bool, d time.Duration) time.Duration {
			if known {
				return d
			}
			return -1
		}
		l := To(io.Discard, Options{Now: clock.Now, Filter: c.filter})
		l.Begin()
		clock.Pass(time.Hour)
		l.Filter(c.filter) // as with each change of the Corefile
		complete(t, l, "shop", want(c.shop, time.Hour))
		complete(t, l, "", want(c.all, time.Hour))
		l.Filter(Filter{Namespaces: []string{"pay"}})
		clock.Pass(time.Hour)
		l.Filter(c.filter)
		clock.Pass(time.Minute)
		complete(t, l, "shop", want(c.shop, time.Minute))
		closeLog(t, l)
	}
}
