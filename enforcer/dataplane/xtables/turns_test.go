package xtables

import (
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/iptablestest"
)

// reads counts the sets whose members are read, and how often all sizes are, which takes
// more than its share of a core. Each reading takes so long.
type reads struct {
	ipset.Interface
	n, sizes int
	takes    time.Duration
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
	time.Sleep(r.takes)
	return r.Interface.Each(name, each)
}

// TestComparingSetsTakesAShareOfACore, however few are compared at a time. Meanwhile the sizes of the static
// sets are read.
func TestComparingSetsTakesAShareOfACore(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		time.Millisecond: 0, 10 * time.Millisecond: dataplane.PollShare * 10 * time.Millisecond,
		100 * time.Millisecond: dataplane.PollShare * 100 * time.Millisecond, 200 * time.Millisecond: maxPause,
	} {
		diff.Equal(t, want, pause(took), "after", took)
	}
	fake := ipset.NewFake(time.Now)
	sets := &reads{Interface: fake}
	x := newFilter(sets, iptablestest.NewFake())
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
	all := x.mirrors.of(st)
	sets.n, sets.takes, x.mirrors.turns = 0, lookShare, nil
	if x.mirrors.compareTurns(all); sets.n != 1 {
		t.Errorf("%d sets are compared in a share that one takes", sets.n)
	}
	sets.takes = 0
	for n := 0; sets.n < len(all) && n < 2*len(all); n++ {
		x.mirrors.compareTurns(all)
	}
	if sets.n != len(all) || len(x.mirrors.turns) > 0 {
		t.Errorf("%d of %d sets are compared in a round", sets.n, len(all))
	}
	fatal.If(t, fake.Destroy(StaticSets()[0].Name))
	if !x.Changed(st) {
		t.Error("in a pause a static set is gone, and nothing shows it")
	}
}
