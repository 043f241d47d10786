package enforcer

import (
	"maps"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/enforcer/grants"
	"github.com/namegate/namegate/kernel/ipset"
)

// membersDiffer compares the members of the sets whose turn it is, and notes those that
// deviate: a member that was exchanged for another shows in no size. How many sets have
// their turn depends on how long they take.
func (e *Enforcer) membersDiffer() bool {
	began := time.Now()
	e.turns.begin(e)
	differ := 0
	plan := e.inForce()
	wanted := map[string][]ipset.Entry(nil)
	for range e.turns.each {
		switch {
		case len(e.turns.static) > 0:
			if wanted == nil {
				wanted = e.staticEntries(plan)
			}
			s := e.turns.static[0]
			e.turns.static = e.turns.static[1:]
			if d, err := e.compareStatic(s, wanted[s.Name]); err == nil && d.Any() {
				differ++
			}
		case len(e.turns.peers) > 0:
			s := e.turns.peers[0]
			e.turns.peers = e.turns.peers[1:]
			if e.peers[s.key] != s || s.refused {
				continue
			}
			if d, err := e.comparePeers(s); err == nil && d.Any() {
				e.differing[s] = true
				differ++
			}
		case len(e.turns.grants) > 0:
			s := e.turns.grants[0]
			e.turns.grants = e.turns.grants[1:]
			if differs, err := e.grants.Compare(s); err == nil && differs {
				differ++
			}
		}
	}
	e.turns.took(began, time.Since(began))
	return differ > 0
}

// turns are the sets whose members are still to be compared in this round, how many are
// at a time, and when the next ones are.
type turns struct {
	static []ipset.Set
	peers  []*peerSet
	grants []*grants.Set
	each   int
	next   time.Time
}

// turnsLeast and turnsMost bound how many sets are compared at a glance. turnsPause
// bounds the pause until the next one.
const (
	turnsLeast = 4
	turnsMost  = 1024
	turnsPause = time.Second
)

// begin starts a round when the last one is over.
func (t *turns) begin(e *Enforcer) {
	t.each = max(t.each, turnsLeast)
	if len(t.static)+len(t.peers)+len(t.grants) > 0 {
		return
	}
	t.static = xtables.StaticSets()
	t.peers = slices.AppendSeq(t.peers, maps.Values(e.peers))
	t.grants = slices.AppendSeq(t.grants, e.grants.All())
}

// took adapts how many sets are compared at a glance, so that glances take about one part
// in glanceShare of a core. After a few sets that take long, as large ones do, there is a
// pause.
func (t *turns) took(began time.Time, d time.Duration) {
	t.next = time.Time{}
	if d > glanceEvery/glanceShare && t.each <= turnsLeast {
		t.next = began.Add(min(glanceShare*d, turnsPause))
	}
	switch share := glanceEvery / glanceShare; {
	case d > share:
		t.each = max(t.each/2, turnsLeast)
	case d < share/2:
		t.each = min(t.each*2, turnsMost)
	}
}

// compareStatic compares one of these sets. While a plan is being written it may hold
// more than that wants.
func (e *Enforcer) compareStatic(s ipset.Set, want []ipset.Entry) (ipset.Difference, error) {
	_, complete := e.holds[s.Name]
	return ipset.Compare(e.k.Sets, s, want, func(ipset.Entry) bool { return complete })
}
