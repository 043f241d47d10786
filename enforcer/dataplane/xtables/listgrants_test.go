package xtables

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestListGrants: few sets are listed one by one and many with all others, with the same result; a
// set that is missing has no grants.
func TestListGrants(t *testing.T) {
	for _, count := range []int{1, listSingly, listSingly + 1} {
		var sets []dataplane.GrantSet
		for i := range count {
			sets = append(sets, grantSetOf(fmt.Sprintf("p%d", i), false))
		}
		other := grantSetOf("other", false)
		g, fake := fakeGrantSets(t, append(slices.Clone(sets), other)...)
		x := &packetFilter{grants: g}
		x.cfg.Sets = fake
		ops := []dataplane.GrantOp{{Set: other, Grants: granted("198.51.100.9")}}
		want := map[string][]string{}
		for i, s := range sets {
			a := fmt.Sprintf("192.0.2.%d", i)
			ops = append(ops, dataplane.GrantOp{Set: s, Grants: granted(a)})
			want[s.Pod.Name] = []string{a}
		}
		g.apply(ops)
		fatal.If(t, fake.Destroy(sets[0].Name))
		delete(want, sets[0].Pod.Name)
		got := map[string][]string{}
		fatal.If(t, x.ListGrants(sets, func(set dataplane.GrantSet, part []dataplane.Grant) {
			for _, a := range part {
				got[set.Pod.Name] = append(got[set.Pod.Name], a.Addr.String())
			}
		}))
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%d sets: %s", count, d)
		}
	}
}
