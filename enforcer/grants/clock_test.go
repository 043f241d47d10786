package grants

import (
	"math"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/diff"
)

func TestMonotonicTimes(t *testing.T) {
	started := time.Unix(1_700_000_000, 123)
	origin := monotonic(5 * time.Hour)
	now := started
	c := NewClock(func() time.Time { return now }, 5*time.Hour)
	now = started.Add(90 * time.Second)
	at := c.read()
	if at.now != origin+monotonic(90*time.Second) || !at.epoch.Equal(started.Add(-5*time.Hour)) {
		t.Errorf("now %d of an agent that started at %v", at.now, at.epoch)
	}
	diff.Equal(t, monotonic(4*time.Hour), c.at(started.Add(-time.Hour)), "an hour before the start")
	for _, far := range []time.Time{time.Unix(math.MaxInt64/2, 0), {}} {
		if m := c.at(far); (m > 0) != far.After(started) {
			t.Errorf("%v is on the wrong side: %d", far, m)
		}
	}
}

// The seconds of a comment are monotonic time.
func TestSecondsOfComments(t *testing.T) {
	for _, test := range []struct {
		m    monotonic
		want int64
	}{{0, 0}, {1, 1}, {at(7), 7}, {at(7) + 1, 8}, {-1, 0}, {at(-7), -7}, {at(-7) + 1, -6}} {
		diff.Equal(t, test.want, test.m.seconds(), test.m, "in seconds")
	}
	const most = int64(offsetMax / time.Second)
	for _, test := range []struct {
		seconds int64
		want    monotonic
	}{{0, 0}, {77, at(77)}, {-5, at(-5)}, {math.MaxInt64, at(most)}, {math.MinInt64, at(-most)}} {
		diff.Equal(t, test.want, parseSeconds(test.seconds), test.seconds, "in a comment")
	}
}

func TestMatches(t *testing.T) {
	by := []string{"shop/a *.test", "shop/b *.test"}
	both := matchesOf(by)
	if both.String() != "shop/a *.test,shop/b *.test" || both != matchesOf([]string{"shop/a *.test", "shop/b *.test"}) {
		t.Errorf("%q", both)
	}
	by[0] = "changed"
	if both.String() != "shop/a *.test,shop/b *.test" || matchesOf(nil).String() != "" || matchesOf([]string{""}).String() != "" {
		t.Errorf("%q", both)
	}
}

// An entry without readable reasons ends with the hold.
func TestAGrantWithoutReasonsIsOver(t *testing.T) {
	table := New(Config{Hold: time.Minute})
	for _, reasons := range []reasons{nil, {{until: never}}, {{until: 7}}} {
		g := (&set{}).copyOf(addr("192.0.2.1"))
		g.setReasons(reasons)
		diff.Equal(t, time.Minute+time.Second, table.render(g, reading{now: monotonic(time.Hour)}).Timeout, reasons)
	}
}
