package dataplane_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
)

// TestUnionOfEqualsSorting: the union is what sorting both lists gives, and copies nothing
// where one list has all.
func TestUnionOfEqualsSorting(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	list := func() (out []policy.RuleID) {
		for range rnd.IntN(8) {
			out = append(out, policy.RuleID(rune('a'+rnd.IntN(10))))
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	for range 5000 {
		a, b := list(), list()
		both := slices.Concat(a, b)
		slices.Sort(both)
		want := slices.Compact(both)
		is := dataplane.UnionOf(slices.Clone(a), slices.Clone(b))
		if !slices.Equal(is, want) {
			t.Fatalf("union of %q and %q is %q, want %q", a, b, is, want)
		}
		for _, all := range [][]policy.RuleID{a, b} {
			if is := dataplane.UnionOf(a, b); len(a) != len(b) && len(all) == len(want) && len(all) > 0 && &is[0] != &all[0] {
				t.Fatalf("union of %q and %q is a copy", a, b)
			}
		}
	}
}
