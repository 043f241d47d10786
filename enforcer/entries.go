package enforcer

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
)

// prepareEntries makes the entry sets that subjects need, before grants by a coming snapshot
// need them, and takes in what an earlier agent left in them. Until that succeeds nothing is
// granted, and what is in the kernel is in force.
func (e *Enforcer) prepareEntries(ctx context.Context, subjects dataplane.Subjects, coming *policy.Snapshot) error {
	rules := ruleset.RulesOf(subjects)
	fresh := slices.DeleteFunc(slices.Clone(rules), func(id policy.RuleID) bool {
		_, entered := slices.BinarySearch(e.entered, id)
		return entered
	})
	names := make([]string, len(fresh))
	for i, id := range fresh {
		names[i] = string(id)
	}
	if err := e.k.Tables.AddSets(ctx, layout.Inet, layout.EntrySets(names...)); err != nil {
		return err
	}
	if err := e.grants.Recover(fresh, coming.View, false); err != nil {
		return fmt.Errorf("recover the entries of ordered rules: %w", err)
	}
	e.entered = dataplane.UnionOf(e.entered, rules)
	return nil
}

// removeKeys removes keys of entries that are not held. Until a snapshot is in force, rules of an
// earlier agent are, whose entries may not be known.
func (e *Enforcer) removeKeys(held func(subject, a netip.Addr) bool) (more bool, err error) {
	if !e.committed.Load() {
		return false, nil
	}
	return e.k.Tables.Store.RemoveKeys(held)
}
