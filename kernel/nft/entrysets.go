package nft

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/knftables"
)

// AddEntrySets makes entry sets ahead of a state that has them. The next state that does not
// removes them.
func (t *Tables) AddEntrySets(ctx context.Context, sets []EntrySet) error {
	missing := tierObjects{entries: sets}.without(t.tiers)
	if len(missing.entries) == 0 {
		return nil
	}
	tx := t.inet.NewTransaction()
	missing.layOut(layout{tx})
	if err := t.run(ctx, t.inet, tx); err != nil {
		t.partial = true
		return fmt.Errorf("add entry sets to nft table %s %s: %w", knftables.InetFamily, TableName, err)
	}
	with := t.tiers
	with.entries = slices.Concat(with.entries, missing.entries)
	for _, s := range missing.entries {
		with.key += "+" + s.Name + " "
	}
	t.setTiers(with)
	return nil
}
