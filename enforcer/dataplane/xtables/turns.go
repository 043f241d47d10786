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

// turn compares the members of one set; static has the entries of static sets.
type turn func(static func() map[string][]ipset.Entry) (differs bool)

// minTurns and maxTurns bound how many sets are compared at a time. maxPause bounds the pause
// until the next ones, and the pause between two readings of all sizes.
const (
	minTurns = 4
	maxTurns = 1024
	maxPause = 5 * time.Second
)

// lookShare bounds each comparison of a Changed call, so that they take one part in
// PollShare of a core.
const lookShare = dataplane.PollEvery / dataplane.PollShare

// pause returns how long no further comparison follows one that took longer than its
// share.
func pause(took time.Duration) time.Duration {
	if took <= lookShare {
		return 0
	}
	return min(dataplane.PollShare*took, maxPause)
}

// membersDiffer compares the members of the sets whose turn it is, and notes the sets that
// deviate. How many sets have their turn depends on how long they take.
func (x *packetFilter) membersDiffer(st dataplane.State) (differs bool) {
	began := time.Now()
	t := &x.turns
	t.each = max(t.each, minTurns)
	if len(t.sets) == 0 {
		t.sets = x.round(st)
	}
	entries := sync.OnceValue(func() map[string][]ipset.Entry { return staticEntries(st, everySet) })
	for n := min(t.each, len(t.sets)); n > 0; n-- {
		differs = t.sets[0](entries) || differs
		t.sets = t.sets[1:]
	}
	t.took(began, time.Since(began))
	return differs
}

// round returns the turns of all sets.
func (x *packetFilter) round(st dataplane.State) (out []turn) {
	for _, set := range StaticSets() {
		out = append(out, func(entries func() map[string][]ipset.Entry) bool {
			d, err := x.static.compare(set, entries()[set.Name])
			return err == nil && d.Any()
		})
	}
	for _, s := range mirrorsOf(st.Grants) {
		out = append(out, func(func() map[string][]ipset.Entry) bool {
			differs, err := x.mirrors.differs(s)
			return err == nil && differs
		})
	}
	return out
}

// took adapts how many sets are compared at a time. After sets that took long, as one large set
// among many small ones does, there is a pause.
func (t *turns) took(began time.Time, d time.Duration) {
	t.next = time.Time{}
	if p := pause(d); p > 0 {
		t.next = began.Add(p)
	}
	switch {
	case d > lookShare:
		t.each = max(t.each/2, minTurns)
	case d < lookShare/2:
		t.each = min(t.each*2, maxTurns)
	}
}
