package enforcer

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestMomentsOfAnAgent(t *testing.T) {
	started := time.Unix(1_700_000_000, 123)
	now := started.Add(90 * time.Second)
	e := &Enforcer{started: started, now: func() time.Time { return now }}
	at := e.instant()
	if at.now != moment(90*time.Second) || !at.epoch.Equal(started) {
		t.Errorf("now %d of an agent that started at %v", at.now, at.epoch)
	}
	if got := e.moment(started.Add(-time.Hour)); got != -moment(time.Hour) {
		t.Errorf("an hour before the start: %d", got)
	}
	for _, far := range []time.Time{time.Unix(math.MaxInt64/2, 0), {}} {
		if m := e.moment(far); m.unix(at.epoch)-far.Unix() == 0 {
			t.Errorf("%v is within 292 years", far)
		} else if (m > 0) != far.After(started) {
			t.Errorf("%v is on the wrong side: %d", far, m)
		}
	}
}

// The clock that comments are in is set while an agent runs: deadlines keep their
// distance from now, and the next agent, which starts by the new clock, reads them so.
func TestAClockThatIsSetMovesNoDeadline(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		step := time.Duration(r.Int64N(int64(48*time.Hour))) - 24*time.Hour
		started, passed := time.Unix(1_700_000_000, r.Int64N(1e9)), time.Duration(r.Int64N(int64(time.Hour)))
		until := moment(passed) + moment(r.Int64N(int64(time.Hour)))
		// What instant makes of a clock that was set forward by step.
		first := instant{now: moment(passed), epoch: started.Add(step)}
		text := string(appendComment(nil, []reason{{name: dns("a.test"), until: until}}, first.epoch))

		next := &Enforcer{started: started.Add(step).Add(passed)}
		got := parseComment(text, next.started)
		left, want := time.Duration(got[0].until), time.Duration(until-first.now)
		if left < want || left >= want+time.Second {
			t.Fatalf("step %v: %v left, want %v: %s", step, left, want, text)
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
