package enforcer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

const flushesTables = "flushes the nft ruleset"

// stepRivals are other programs that lose everything of one kind.
var stepRivals = map[string]func(w *world) error{
	flushesTables: func(w *world) error {
		for _, table := range []*knftables.Fake{w.inet, w.bridge, w.net} {
			tx := table.NewTransaction()
			tx.Add(&knftables.Table{})
			tx.Delete(&knftables.Table{})
			if err := table.Run(context.Background(), tx); err != nil {
				return err
			}
		}
		return nil
	},
	"flushes and deletes chains": func(w *world) error {
		for _, f := range ipVersions {
			for _, table := range tables {
				w.flushChains(f, table)
			}
		}
		return nil
	},
	"flushes sets": func(w *world) error {
		for _, n := range w.setNames() {
			if err := w.flush(n); err != nil {
				return err
			}
		}
		return nil
	},
	"swaps sets": func(w *world) error {
		last := map[string]string{} // of a type and family
		names := map[string]string{}
		err := w.sets.Each("", func(s ipset.Set, _ []ipset.Entry) {
			names[s.Name] = fmt.Sprint(s.Type, s.IPv6)
		})
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if other := last[names[name]]; other != "" {
				err = errors.Join(err, w.sets.Swap(other, name))
			}
			last[names[name]] = name
		}
		return err
	},
}

// TestARivalAfterEveryStep: whatever another program takes away, and after whichever step
// of a roll-out, is back after the roll-out and a look.
func TestARivalAfterEveryStep(t *testing.T) {
	t.Parallel()
	eachPlane(t, testRivalAfterEveryStep)
}

func testRivalAfterEveryStep(t *testing.T, plane string) {
	w, next := busyOn(t, plane)
	fatal.If(t, w.rollOut(next))
	want := strings.Split(sortedLines(w.dump()), "\n")
	for what, rival := range stepRivals {
		if plane == nftablesPlane && what != flushesTables {
			continue // there is no such thing
		}
		n := 1
		for ; n < maxSteps; n++ {
			w, next := busyOn(t, plane)
			w.seams.forget(0, false)
			came, step := false, ""
			w.seams.after = func(at int, s string) {
				if at == n && !came {
					came, step = true, s
					fatal.If(t, rival(w))
				}
			}
			for try := 1; ; try++ {
				err := w.rollOut(next)
				if err == nil {
					break
				}
				if try == 3 {
					t.Errorf("a rival %s after step %d, %q: the third try says %v", what, n, step, err)
					break
				}
			}
			if !came {
				break
			}
			w.reconcileMembers()
			diff.Error(t, want, strings.Split(sortedLines(w.dump()), "\n"), "a rival", what, "after step", n, step, "after a look")
		}
		if n < map[string]int{iptablesPlane: 30, nftablesPlane: 15}[plane] || n == maxSteps {
			t.Errorf("the roll-out takes %d steps: the test does not see them", n)
		}
	}
}
