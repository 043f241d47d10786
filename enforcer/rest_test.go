package enforcer

import (
	"testing"
	"time"
)

// TestLooksForChangesRest: looks that find nothing take a tenth of the time, and those that
// repair do not wait.
func TestLooksForChangesRest(t *testing.T) {
	t.Parallel()
	var r rest
	began := time.Unix(1_700_000_000, 0)
	for _, step := range []struct {
		took, since time.Duration
		repaired    bool
		want        time.Duration
	}{
		{0, 0, false, 0},
		{200 * time.Millisecond, 0, false, 1800 * time.Millisecond},
		{200 * time.Millisecond, time.Second, false, 800 * time.Millisecond},
		{200 * time.Millisecond, 2 * time.Second, false, 0},
		{200 * time.Millisecond, 0, true, 0},
	} {
		ended := began.Add(step.took)
		r.looked(began, ended, step.repaired)
		if got := r.wait(ended.Add(step.since)); got != step.want {
			t.Errorf("%v after a look of %v, which repaired: %v: %v, want %v", step.since, step.took, step.repaired, got, step.want)
		}
	}
	if first := (&rest{}).wait(began); first != 0 {
		t.Errorf("the first look waits %v", first)
	}
}

// TestALookReplacesThePlannedOne: a deviation of grants shows in a look at everything alone, and
// a check that comes by itself looks at less.
func TestALookReplacesThePlannedOne(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ planned, all, want bool }{{}, {all: true, want: true}, {planned: true, want: true}, {planned: true, all: true, want: true}} {
		var p planned
		if test.planned {
			p.look = make(chan time.Time)
		}
		if got := p.replaced(test.all); got != test.want || p.look != nil {
			t.Errorf("%+v: at everything: %v, planned still: %v", test, got, p.look != nil)
		}
	}
}
