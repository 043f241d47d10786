package enforcer

import (
	"math"
	"testing"
	"time"
)

func TestMomentsOfAnAgent(t *testing.T) {
	started := time.Unix(1_700_000_000, 123)
	now := started.Add(90 * time.Second)
	origin := moment(5 * time.Hour)
	e := &Enforcer{started: started, origin: origin, now: func() time.Time { return now }}
	at := e.instant()
	if at.now != origin+moment(90*time.Second) || !at.epoch.Equal(started.Add(-5*time.Hour)) {
		t.Errorf("now %d of an agent that started at %v", at.now, at.epoch)
	}
	if got := e.moment(started.Add(-time.Hour)); got != moment(4*time.Hour) {
		t.Errorf("an hour before the start: %d", got)
	}
	for _, far := range []time.Time{time.Unix(math.MaxInt64/2, 0), {}} {
		if m := e.moment(far); (m > 0) != far.After(started) {
			t.Errorf("%v is on the wrong side: %d", far, m)
		}
	}
}

// Comments are whole seconds of a clock that nobody sets, and those of earlier
// agents of the one that tells the time.
func TestMomentsInComments(t *testing.T) {
	for _, test := range []struct {
		m    moment
		want int64
	}{{0, 0}, {1, 1}, {at(7), 7}, {at(7) + 1, 8}, {-1, 0}, {at(-7), -7}, {at(-7) + 1, -6}} {
		if got := test.m.seconds(); got != test.want {
			t.Errorf("moment %d is second %d, want %d", test.m, got, test.want)
		}
	}
	epoch := time.Unix(1_700_000_000, 0)
	for _, test := range []struct {
		seconds int64
		want    moment
	}{{0, 0}, {77, at(77)}, {-5, at(-5)}, {unixFrom - 1, at(unixFrom - 1)}, {1_700_000_090, at(90)}, {1_699_999_000, at(-1000)}, {math.MinInt64, at(-unixFrom)}} {
		if got := readMoment(test.seconds, epoch); got != test.want {
			t.Errorf("%d in a comment is %d, want %d", test.seconds, got, test.want)
		}
	}
}

func TestTheKernelsClockRuns(t *testing.T) {
	a, err := running()
	if err != nil || a <= 0 {
		t.Fatal(a, err)
	}
	for b := a; b == a; {
		if b, err = running(); err != nil || b < a {
			t.Fatalf("%d after %d: %v", b, a, err)
		}
	}
}

func TestOrigins(t *testing.T) {
	by := []string{"shop/a *.test", "shop/b *.test"}
	both := originOf(by)
	if both.String() != "shop/a *.test,shop/b *.test" || both != originOf([]string{"shop/a *.test", "shop/b *.test"}) {
		t.Errorf("%q", both)
	}
	by[0] = "changed"
	if both.String() != "shop/a *.test,shop/b *.test" || originOf(nil).String() != "" || originOf([]string{""}).String() != "" {
		t.Errorf("%q", both)
	}
}

// What nobody opened, as an entry of an earlier agent's that cannot be read, ends
// with the hold.
func TestAGrantWithoutReasonsIsOver(t *testing.T) {
	e := &Enforcer{cfg: Config{Hold: time.Minute}}
	for _, reasons := range [][]reason{nil, {{until: ever}}, {{until: 7}}} {
		if got := e.entry(addr("192.0.2.1"), &grant{reasons: reasons}, instant{now: moment(time.Hour)}).Timeout; got != time.Minute+time.Second {
			t.Errorf("%v: %v", reasons, got)
		}
	}
}
