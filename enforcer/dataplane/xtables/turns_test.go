package xtables

import (
	"log/slog"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/grants"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
)

// How many sets are compared at a time follows from how long they take.
func TestTurnsArePaced(t *testing.T) {
	share := dataplane.GlanceEvery / dataplane.GlanceShare
	n := turns{each: turnsLeast}
	for _, step := range []struct {
		took time.Duration
		want int
	}{
		{share / 3, 2 * turnsLeast}, {share, 2 * turnsLeast}, {share / 3, 4 * turnsLeast}, {2 * share, 2 * turnsLeast},
		{time.Second, turnsLeast}, {time.Second, turnsLeast},
	} {
		if n.took(time.Now(), step.took); n.each != step.want {
			t.Errorf("after %v %d sets are compared at a time, want %d", step.took, n.each, step.want)
		}
	}
	for range 20 {
		n.took(time.Now(), 0)
	}
	if n.each != turnsMost {
		t.Errorf("%d sets are compared at a time, want %d", n.each, turnsMost)
	}
}

// reads counts the sets whose members are read.
type reads struct {
	ipset.Interface
	n int
}

func (r *reads) Read(name string) (ipset.Set, []ipset.Entry, error) {
	r.n++
	return r.Interface.Read(name)
}

// TestComparingLargeSetsTakesAShareOfACore, however few are compared at a time.
func TestComparingLargeSetsTakesAShareOfACore(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	for _, test := range []struct {
		each        int
		took, pause time.Duration
	}{
		{turnsLeast, time.Millisecond, 0},
		{turnsLeast, 10 * time.Millisecond, dataplane.GlanceShare * 10 * time.Millisecond},
		{turnsLeast, 100 * time.Millisecond, turnsPause},
		{64, 10 * time.Millisecond, 0}, // fewer are compared the next time
	} {
		n := turns{each: test.each}
		if n.took(at, test.took); n.next.IsZero() != (test.pause == 0) || !n.next.IsZero() && n.next.Sub(at) != test.pause {
			t.Errorf("%d sets took %v: the next ones are compared at %v", test.each, test.took, n.next)
		}
	}
	sets := &reads{Interface: ipset.NewFake(time.Now)}
	owner := dataplane.Owner{Mark: testMark, Candidate: testCandidate, Now: time.Now, Log: slog.New(slog.DiscardHandler), Coexisting: func() bool { return false }}
	x := Config{Sets: sets, Chains: iptables.NewFake()}.New(owner, grants.New(grants.Config{Sets: sets, Clock: grants.NewClock(time.Now, 0)})).(*packetFilter)
	if _, err := x.Recover(); err != nil {
		t.Fatal(err)
	}
	for _, pause := range []time.Duration{0, time.Hour} {
		x.turns, sets.n = turns{next: time.Now().Add(pause)}, 0
		if x.Suspect(dataplane.State{}); sets.n > 0 != (pause == 0) {
			t.Errorf("in a pause of %v the members of %d sets are read", pause, sets.n)
		}
	}
}
