package enforcer

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
)

// rulesOf returns the rules for which addresses may be granted to subjects, sorted.
func rulesOf(subjects dataplane.Subjects) []policy.RuleID {
	var all []policy.RuleID
	seen := map[*policy.RuleID]bool{}
	for _, p := range subjects {
		if len(p.Entries) == 0 || seen[&p.Entries[0]] {
			continue // many share their entries
		}
		seen[&p.Entries[0]] = true
		all = dataplane.UnionOf(all, p.Entries)
	}
	return slices.Clone(all)
}

// entrySets returns the names of the entry sets of rules.
func entrySets(rules []policy.RuleID) (out []string) {
	for _, id := range rules {
		out = append(out, string(id))
	}
	return out
}

// prepareEntries makes the entry sets that subjects need, before grants by a coming snapshot
// need them, and takes in what an earlier agent left in them. Until that succeeds nothing is
// granted, and what is in the kernel is in force.
func (e *Enforcer) prepareEntries(ctx context.Context, subjects dataplane.Subjects, coming *policy.Snapshot) error {
	rules := rulesOf(subjects)
	if err := e.k.Tables.AddSets(ctx, entrySets(rules), nil); err != nil {
		return err
	}
	fresh := slices.DeleteFunc(rules, func(id policy.RuleID) bool { return e.entered[id] })
	if err := e.entries.Recover(fresh, coming.View, e.grants); err != nil {
		return fmt.Errorf("recover the entries of ordered rules: %w", err)
	}
	for _, id := range fresh {
		e.entered[id] = true
	}
	return nil
}

// forgetEntries forgets the rules whose entry sets the tables have no more.
func (e *Enforcer) forgetEntries() {
	rules := rulesOf(e.inForce())
	maps.DeleteFunc(e.entered, func(id policy.RuleID, _ bool) bool {
		_, still := slices.BinarySearch(rules, id)
		return !still
	})
}
