package grants

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/granttest"
)

// inTables is gated with all grants in the nft tables: 192.0.2.1 is open, 192.0.2.2 and 192.0.2.3 are denied.
func inTables(t *testing.T) (w *node, open, deny dataplane.GrantSet, verify func(what string, want int) []Deviation) {
	w, p := gated(t)
	w.inPlace = true
	w.restart()
	w.apply([]policy.Pod{p}, pol("allow", "tcp/443 *.example.net"))
	open, deny = grantSet(p.PodRef, https, false), w.rule(p, policy.Deny, false)
	for name, a := range map[string]string{"www.example.net": "192.0.2.1", "x.denied.test": "192.0.2.2", "y.denied.test": "192.0.2.3"} {
		fatal.If(t, granttest.Grant(context.Background(), w.table, w.decided(p.PodRef, name, 600, a)))
	}
	return w, open, deny, func(what string, want int) []Deviation {
		t.Helper()
		found, err := w.table.Verify([]policy.RuleID{deny.Rule})
		if err != nil || len(found) != want {
			t.Errorf("%s: deviations %v, %v, want %d", what, found, err, want)
		}
		return found
	}
}

// TestVerifyAndRepair: lost, changed and foreign grants are found and repaired, those that deny first, and
// foreign ones of theirs are removed last. Those of another agent are none, and it moves deadlines.
func TestVerifyAndRepair(t *testing.T) {
	w, open, deny, verify := inTables(t)
	verify("as wanted", 0)
	foreign := dataplane.GrantSet{Rule: deny.Rule, Subject: addr("10.9.9.9")}
	longer, by := w.sets.held[nameOf(deny)][addr("192.0.2.3")], w.sets.held[nameOf(open)][addr("192.0.2.1")]
	longer.until, by.comment = longer.until.Add(time.Minute), "by hand"
	delete(w.sets.held[nameOf(deny)], addr("192.0.2.2"))
	w.sets.held[nameOf(deny)][addr("192.0.2.3")] = longer
	w.sets.held[nameOf(open)][addr("192.0.2.1")], w.sets.held[nameOf(open)][addr("192.0.2.7")] = by, by
	w.sets.create(nameOf(foreign))
	w.sets.held[nameOf(foreign)][addr("192.0.2.7")] = by
	w.coexisting = true
	verify("beside another agent", 1)
	w.coexisting = false
	found := verify("alone", 5)
	if !slices.IsSortedFunc(found, Deviation.compare) || found[0].Set.Rule != deny.Rule {
		t.Errorf("in the order %v", found)
	}
	w.sets.writes = nil
	fatal.If(t, w.table.Repair(found))
	verify("repaired", 0)
	ops := slices.Concat(w.sets.writes...)
	if first, last := ops[0], ops[len(ops)-1]; first.Set != deny || first.Remove || last.Set != foreign || !last.Remove || w.sets.held[nameOf(open)][addr("192.0.2.1")].comment == "by hand" {
		t.Errorf("written: %v", ops)
	}
}

// TestDueGrants: a grant whose deadline has passed has a shorter timeout in the kernel than the least that
// the table renders, which is no deviation; the kernel may have ended one that denies, and no other.
func TestDueGrants(t *testing.T) {
	w, open, deny, verify := inTables(t)
	w.Pass(700*time.Second + hold/2)
	verify("after the deadlines", 0)
	delete(w.sets.held[nameOf(deny)], addr("192.0.2.2"))
	verify("one that denied has ended", 0)
	e := w.sets.held[nameOf(open)][addr("192.0.2.1")]
	e.until = w.Now().Add(hold + time.Minute)
	w.sets.held[nameOf(open)][addr("192.0.2.1")] = e
	verify("one lasts longer", 1)
	delete(w.sets.held[nameOf(open)], addr("192.0.2.1"))
	verify("one that opened is lost", 1)
}

// TestGrantsThatChangeAreNoDeviation: what deviates at one of two readings alone, or otherwise at each,
// changed between the parts of a reading.
func TestGrantsThatChangeAreNoDeviation(t *testing.T) {
	for what, second := range map[string]func(e *entry) bool{
		"there again":   func(*entry) bool { return true },
		"other comment": func(e *entry) bool { e.comment = "x"; return true },
		"still lost":    func(*entry) bool { return false },
	} {
		w, open, _, verify := inTables(t)
		e, readings := w.sets.held[nameOf(open)][addr("192.0.2.1")], 0
		delete(w.sets.held[nameOf(open)], addr("192.0.2.1"))
		w.sets.listing = func() {
			if readings++; readings == 1 && second(&e) {
				w.sets.held[nameOf(open)][addr("192.0.2.1")] = e
			}
		}
		verify(what, map[string]int{"still lost": 1}[what])
	}
}
