package enforcer

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/fatal"
)

// countedPlane notes the phases that a dataplane is asked for.
type countedPlane struct {
	dataplane.Interface
	asked []dataplane.Phase
}

func (c *countedPlane) Apply(ctx context.Context, st dataplane.State, to dataplane.Phase) error {
	c.asked = append(c.asked, to)
	return c.Interface.Apply(ctx, st, to)
}

// TestNamesAlone: a change of names alone has the dataplane write nothing, unless the kernel may deviate from what is in
// force, or that changes too. After each roll-out nothing deviates. The same snapshot again is written wholly.
func TestNamesAlone(t *testing.T) {
	t.Parallel()
	whole := []dataplane.Phase{dataplane.Prepare, dataplane.Commit, dataplane.Shrink}
	failing := func(w *world, step string, do func() error) {
		if w.seams.refuse = step; !errors.Is(do(), errInjected) {
			w.t.Errorf("%q is not refused", step)
		}
		w.seams.refuse = ""
	}
	move := func(w *world) { w.links.SetHome(addr("10.1.0.5"), link.Home{Iface: "veth9"}) }
	compare := func(w *world, repair bool) error { return w.e.compare(context.Background(), true, repair) }
	rollsOut := func(text string) func(*world) {
		return func(w *world) { w.prepare(w.compile([]policy.Pod{w.snap.Views[0].Pod}, pol("allow", text))) }
	}
	for what, test := range map[string]struct {
		before, prepared func(w *world)
		want             []dataplane.Phase
	}{
		"nothing else": {want: whole[2:]},
		"a deviation that waits for its repair": {want: whole, before: func(w *world) {
			fatal.If(w.t, w.flush("NG4-selected"))
			if compare(w, false) == nil {
				w.t.Error("nothing deviates")
			}
		}},
		"a deviation that was repaired": {want: whole[2:], before: func(w *world) {
			fatal.If(w.t, errors.Join(w.flush("NG4-selected"), compare(w, true)))
		}},
		"homes that could not be written": {want: whole, before: func(w *world) {
			move(w)
			failing(w, "restore", func() error { return compare(w, true) })
		}},
		"members of peers": {want: whole, before: func(w *world) { w.remote = w.remote[1:] }},
		"a commit that failed": {want: whole, before: func(w *world) {
			w.track("10.1.0.5:1001", "192.0.2.1:443")
			rollsOut("tcp/443 mail.test")(w)
			failing(w, "mark", func() error { return w.e.Commit(context.Background()) })
		}},
		"another that was prepared": {want: whole, before: rollsOut("tcp/80-90 www.example.org")},
		"a home that moves when it is prepared": {want: slices.Concat(whole[1:2], whole[1:]), prepared: func(w *world) {
			fatal.If(w.t, compare(w, true))
			move(w)
		}},
	} {
		w, client := asksPeers(t)
		plane := &countedPlane{Interface: w.e.plane.Interface}
		if test.before != nil {
			test.before(w)
		}
		next := w.compile([]policy.Pod{client}, pol("allow", "tcp/443 mail.test"))
		w.e.plane.Interface = plane
		w.prepare(next)
		if test.prepared != nil {
			test.prepared(w)
		}
		w.commit()
		asked := plane.asked
		if err := compare(w, false); err != nil || !slices.Equal(asked, test.want) {
			t.Errorf("%s: the dataplane is asked %v, want %v; then %v", what, asked, test.want, err)
		}
		plane.asked = nil
		if fatal.If(t, w.rollOut(next)); !slices.Equal(plane.asked, whole) {
			t.Errorf("%s, and the same snapshot again: the dataplane is asked %v", what, plane.asked)
		}
	}
}
