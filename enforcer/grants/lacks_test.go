package grants

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/policytest"
)

// TestLacksEqualsComparingAll: rules that two views share are not looked at, and a difference
// of two views counts for others, which makes no difference.
func TestLacksEqualsComparingAll(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	rule := func() *policy.Rule {
		r := &policy.Rule{Tier: policy.Tier(rnd.IntN(3) - 1), Policy: fmt.Sprint(rnd.IntN(3)), Action: policy.Action(rnd.IntN(3)), Ports: policy.AnyPort, Audit: rnd.IntN(5) == 0}
		if r.Tier == policy.Namespace {
			r.Action = policy.Accept // those that deny have no names
		} else {
			r.ID = r.NewID()
		}
		for range rnd.IntN(3) {
			pattern, err := fqdn.ParseExact(fmt.Sprintf("name%d.test", rnd.IntN(4)))
			if err != nil {
				t.Fatal(err)
			}
			r.Matches = append(r.Matches, policy.NewMatch(r, "", pattern, 0))
		}
		return r
	}
	slow := func(next, last *policy.View) bool {
		kept := openings(slices.Collect(next.Rules.All()))
		for o := range openings(slices.Collect(last.Rules.All())) {
			if !kept[o] {
				return true
			}
		}
		return false
	}
	said, again := map[bool]int{}, 0
	var d difference
	for range 20_000 {
		var before, after []*policy.Rule
		for range rnd.IntN(6) {
			before = append(before, rule())
		}
		// An ID is of one rule of a view.
		for i, r := range before {
			r.Path = fmt.Sprint(i)
			if r.ID != "" {
				r.ID = r.NewID()
			}
		}
		for i, r := range before {
			switch rnd.IntN(6) {
			case 0:
			case 1:
				other := rule()
				if other.Path = fmt.Sprint(i); other.ID != "" {
					other.ID = other.NewID()
				}
				after = append(after, other)
			default:
				after = append(after, r)
			}
		}
		last, next := policy.View{Rules: policytest.Rules(before...)}, policy.View{Rules: policytest.Rules(after...)}
		got, want := d.lacks(&next, &last), slow(&next, &last)
		if got != want {
			t.Fatalf("%v, want %v: %v after %v", got, want, openings(after), openings(before))
		}
		said[got]++
		// Views with the same difference may share other rules.
		shared := rule()
		if shared.Path = "shared"; shared.ID != "" {
			shared.ID = shared.NewID()
		}
		last, next = policy.View{Rules: policytest.Rules(append(before, shared)...)}, policy.View{Rules: policytest.Rules(append(after, shared)...)}
		known := d.gone
		if got, want := d.lacks(&next, &last), slow(&next, &last); got != want {
			t.Fatalf("%v, want %v: %v after %v, both with %v", got, want, openings(after), openings(before), openings([]*policy.Rule{shared}))
		}
		if len(known) > 0 && maps.Equal(known, d.gone) {
			again++
		}
	}
	if said[true] < 1000 || said[false] < 1000 || again < 1000 {
		t.Errorf("said %v, %d differences again", said, again)
	}
}
