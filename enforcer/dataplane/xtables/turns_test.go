package xtables

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
)

// How many sets are compared at a time follows from how long they take.
func TestTurnsArePaced(t *testing.T) {
	share := dataplane.PollEvery / dataplane.PollShare
	n := turns{each: minTurns}
	for _, step := range []struct {
		took time.Duration
		want int
	}{
		{share / 3, 2 * minTurns}, {share, 2 * minTurns}, {share / 3, 4 * minTurns}, {2 * share, 2 * minTurns},
		{time.Second, minTurns}, {time.Second, minTurns},
	} {
		if n.took(time.Now(), step.took); n.each != step.want {
			t.Errorf("after %v %d sets are compared at a time, want %d", step.took, n.each, step.want)
		}
	}
	for range 20 {
		n.took(time.Now(), 0)
	}
	if n.each != maxTurns {
		t.Errorf("%d sets are compared at a time, want %d", n.each, maxTurns)
	}
}

// reads counts the sets whose members are read, and how often all sizes are, which takes
// more than its share of a core.
type reads struct {
	ipset.Interface
	n, sizes int
}

func (r *reads) Sizes(names ...string) (map[string]int, error) {
	if len(names) == 0 {
		r.sizes++
		time.Sleep(2 * lookShare)
	}
	return r.Interface.Sizes(names...)
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
		{minTurns, time.Millisecond, 0},
		{minTurns, 10 * time.Millisecond, dataplane.PollShare * 10 * time.Millisecond},
		{minTurns, 100 * time.Millisecond, dataplane.PollShare * 100 * time.Millisecond},
		{minTurns, 200 * time.Millisecond, maxPause},
		{64, 10 * time.Millisecond, dataplane.PollShare * 10 * time.Millisecond}, // one large set among small ones
		{64, time.Millisecond, 0},
	} {
		n := turns{each: test.each}
		if got := pause(test.took); test.each == minTurns && got != test.pause {
			t.Errorf("after %v a pause of %v, want %v", test.took, got, test.pause)
		}
		if n.took(at, test.took); n.next.IsZero() != (test.pause == 0) || !n.next.IsZero() && n.next.Sub(at) != test.pause {
			t.Errorf("%d sets took %v: the next ones are compared at %v", test.each, test.took, n.next)
		}
	}
	sets := &reads{Interface: ipset.NewFake(time.Now)}
	owner := dataplane.Owner{Mark: testMark, Candidate: testCandidate, Now: time.Now, Log: slog.New(slog.DiscardHandler), Coexisting: func() bool { return false }}
	x := Config{Sets: sets, Chains: iptables.NewFake()}.New(owner).(*packetFilter)
	if _, err := x.Recover(context.Background()); err != nil {
		t.Fatal(err)
	}
	held := fakeGrants{grantSetOf("web", false): {}}
	for _, pause := range []time.Duration{0, time.Hour} {
		next := time.Now().Add(pause)
		x.turns, x.sizes, sets.n, sets.sizes = turns{next: next}, next, 0, 0
		err := sets.Ensure(grantHeader(grantSetOf("web", false)))
		asked := time.Now()
		if x.Changed(dataplane.State{Grants: held}); err != nil || sets.n > 0 != (pause == 0) || sets.sizes > 0 != (pause == 0) {
			t.Errorf("in a pause of %v the members of %d sets are read, and all sizes %d times, %v", pause, sets.n, sets.sizes, err)
		}
		if !x.sizes.After(asked) {
			t.Error("the sizes of all sets are read again without a pause")
		}
	}
}
