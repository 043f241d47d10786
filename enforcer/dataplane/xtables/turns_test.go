package xtables

import (
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/testkit/fatal"
)

// How many sets are compared at a time follows from how long they take.
func TestTurnsArePaced(t *testing.T) {
	each := minTurns
	for _, step := range []struct {
		took time.Duration
		want int
	}{
		{lookShare / 3, 2 * minTurns}, {lookShare, 2 * minTurns}, {lookShare / 3, 4 * minTurns}, {2 * lookShare, 2 * minTurns},
		{time.Second, minTurns}, {time.Second, minTurns},
	} {
		if each = turnsAfter(each, step.took); each != step.want {
			t.Errorf("after %v %d sets are compared at a time, want %d", step.took, each, step.want)
		}
	}
	for range 20 {
		each = turnsAfter(each, 0)
	}
	if each != maxTurns {
		t.Errorf("%d sets are compared at a time, want %d", each, maxTurns)
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

func (r *reads) Each(name string, each func(ipset.Set, []ipset.Entry)) error {
	r.n++
	return r.Interface.Each(name, each)
}

// TestComparingSetsTakesAShareOfACore, however few are compared at a time. Meanwhile the sizes of the static
// sets are read.
func TestComparingSetsTakesAShareOfACore(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		time.Millisecond: 0, 10 * time.Millisecond: dataplane.PollShare * 10 * time.Millisecond,
		100 * time.Millisecond: dataplane.PollShare * 100 * time.Millisecond, 200 * time.Millisecond: maxPause,
	} {
		if got := pause(took); got != want {
			t.Errorf("after %v a pause of %v, want %v", took, got, want)
		}
	}
	fake := ipset.NewFake(time.Now)
	sets := &reads{Interface: fake}
	x := newFilter(sets, iptables.NewFake())
	fatal.If(t, x.mirrors.ensureStatic())
	web := grantSetOf("web", false)
	fatal.If(t, fake.Ensure(grantHeader(web)))
	st := dataplane.State{Grants: fakeGrants{web: {}}}
	for _, rest := range []time.Duration{0, time.Hour} {
		asked := time.Now()
		x.mirrors.next, sets.n, sets.sizes = asked.Add(rest), 0, 0
		if x.Changed(st) || sets.n > 0 != (rest == 0) || sets.sizes > 0 != (rest == 0) {
			t.Errorf("in a pause of %v the members of %d sets are read, and all sizes %d times, or one deviates", rest, sets.n, sets.sizes)
		}
		if !x.mirrors.next.After(asked) {
			t.Error("the sets are compared again without a pause")
		}
	}
	fatal.If(t, fake.Destroy(StaticSets()[0].Name))
	if !x.Changed(st) {
		t.Error("in a pause a static set is gone, and nothing shows it")
	}
}
