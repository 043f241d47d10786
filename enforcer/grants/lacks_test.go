package grants

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/policytest"
)

// TestLacksEqualsComparingAll: rules that two views share are not looked at, which makes no
// difference.
func TestLacksEqualsComparingAll(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	rule := func() *policy.Rule {
		r := &policy.Rule{Tier: policy.Tier(rnd.IntN(3) - 1), Policy: fmt.Sprint(rnd.IntN(3)), Action: policy.Action(rnd.IntN(3)), Ports: policy.AnyPort, Audit: rnd.IntN(5) == 0}
		if r.Tier != policy.Namespace {
			r.ID = r.NewID()
		}
		for range rnd.IntN(3) {
			pattern, err := fqdn.ParseExact(fmt.Sprintf("name%d.test", rnd.IntN(4)))
			if err != nil {
				t.Fatal(err)
			}
			r.Matches = append(r.Matches, policy.NewMatch(policy.Match{Policy: r.Policy, Pattern: pattern, Ports: r.Ports, Audit: r.Audit, Rule: r}, 0))
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
	said := map[bool]int{}
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
		got, want := lacks(&next, &last), slow(&next, &last)
		if got != want {
			t.Fatalf("%v, want %v: %v after %v", got, want, openings(after), openings(before))
		}
		said[got]++
	}
	if said[true] < 1000 || said[false] < 1000 {
		t.Errorf("said %v", said)
	}
}
