package xtables

import (
	"sync"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
)

// turns are the sets whose members are still to be compared in this round, how many are
// at a time, and when the next ones are: a member that was exchanged for another shows in
// no size.
type turns struct {
	sets []turn
	each int
	next time.Time
}

// turn is one set. differs compares its members; static has the entries of static sets.
type turn struct {
	set     string
	differs func(static func() map[string][]ipset.Entry) bool
}

// turnsLeast and turnsMost bound how many sets are compared at a time. turnsPause bounds
// the pause until the next ones. The comparisons take about one part in GlanceShare of a
// core.
const (
	turnsLeast = 4
	turnsMost  = 1024
	turnsPause = time.Second
)

// membersDiffer compares the members of the sets whose turn it is, and notes the sets that
// deviate. How many sets have their turn depends on how long they take.
func (x *Dataplane) membersDiffer(st dataplane.State) (differs bool) {
	began := time.Now()
	t := &x.turns
	t.each = max(t.each, turnsLeast)
	if len(t.sets) == 0 {
		t.sets = x.round()
	}
	entries := sync.OnceValue(func() map[string][]ipset.Entry { return staticEntries(st) })
	for n := min(t.each, len(t.sets)); n > 0; n-- {
		differs = t.sets[0].differs(entries) || differs
		t.sets = t.sets[1:]
	}
	t.took(began, time.Since(began))
	return differs
}

// round returns the turns of all sets.
func (x *Dataplane) round() (out []turn) {
	for _, set := range StaticSets() {
		out = append(out, turn{set.Name, func(entries func() map[string][]ipset.Entry) bool {
			d, err := x.static.compare(set, entries()[set.Name])
			return err == nil && d.Any()
		}})
	}
	for _, s := range x.peers.all {
		out = append(out, turn{s.name, func(func() map[string][]ipset.Entry) bool {
			if x.peers.all[s.key] != s || s.refused {
				return false
			}
			d, err := x.peers.compare(s)
			differs := err == nil && d.Any()
			if differs {
				x.peers.differing[s] = true
			}
			return differs
		}})
	}
	for s := range x.grants.All() {
		out = append(out, turn{s.Name(), func(func() map[string][]ipset.Entry) bool {
			differs, err := x.grants.Compare(s)
			return err == nil && differs
		}})
	}
	return out
}

// took adapts how many sets are compared at a time. After a few sets that take long, as
// large ones do, there is a pause.
func (t *turns) took(began time.Time, d time.Duration) {
	t.next = time.Time{}
	if d > dataplane.GlanceEvery/dataplane.GlanceShare && t.each <= turnsLeast {
		t.next = began.Add(min(dataplane.GlanceShare*d, turnsPause))
	}
	switch share := dataplane.GlanceEvery / dataplane.GlanceShare; {
	case d > share:
		t.each = max(t.each/2, turnsLeast)
	case d < share/2:
		t.each = min(t.each*2, turnsMost)
	}
}
