package enforcer

import (
	"fmt"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// dies lets the agent die before the nth step of a roll-out, and tells whether there
// is such a step.
func (w *world) dies(n int, s *policy.Snapshot) (died bool) {
	steps := 0
	w.seams.before = func(step string) {
		if steps++; steps == n {
			panic(w)
		}
	}
	defer func() {
		w.seams.before = nil
		if died = recover() == any(w); died {
			w.restart()
		}
	}()
	fatal.If(w.t, w.rollOut(s))
	return false
}

// TestAnAgentThatDiesLeavesNothingUncut: whenever it dies, the next one cuts what is not
// allowed any more, and no connection of whom that is not about, though it knows nothing
// of the grants that have ended.
func TestAnAgentThatDiesLeavesNothingUncut(t *testing.T) {
	t.Parallel()
	for _, by := range losses() {
		for _, follows := range []bool{false, true} { // the agent that dies has followed another
			n := 1
			for died := true; died && n < maxSteps; n++ {
				l := newLosing(t)
				l.opens(by)
				if l.change(by); follows {
					l.restart()
				}
				died = l.dies(n, l.next())
				l.bring()
				l.isCut(fmt.Sprintf("%s, follows %t, and the agent dies before step %d", by.what, follows, n))
			}
			if n < 5 {
				t.Errorf("%s: only %d steps", by.what, n)
			}
		}
	}
}
