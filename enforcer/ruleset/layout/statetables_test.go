package layout_test

import (
	"context"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
)

// stateTables are tables that are told states, as the enforcer tells them. They begin with candidates, and without
// a second net.
type stateTables struct {
	*nft.Tables
	layout.InForce
	*timed.Store
	mode layout.Mode
	memo layout.Memo
}

func newTables(tables *nft.Tables) *stateTables {
	return &stateTables{Tables: tables, InForce: layout.InForce{Tables: tables}, Store: tables.Store, mode: layout.Mode{Bits: bits, Candidates: true}}
}

// openTables opens the tables in the kernel.
func openTables() (*stateTables, error) {
	tables, err := layout.Open()
	if err != nil {
		return nil, err
	}
	return newTables(tables), nil
}

// tablesOn are tables on others' interfaces, without nil ones.
func tablesOn(inet, bridge, net knftables.Interface) *stateTables {
	if net == nil {
		return newTables(nft.New(layout.All[:2], inet, bridge))
	}
	return newTables(nft.New(layout.All, inet, bridge, net))
}

func fakeTable(id nft.ID) *knftables.Fake {
	return knftables.NewFake(knftables.Family(id.Family), id.Name)
}

// decideNamespace has the tables decide the Namespace tier without candidates, and be the second net.
func (t *stateTables) decideNamespace() { t.mode.Candidates, t.mode.HasGrants = false, true }

// admitCandidates has the tables ask candidates too, and be the second net.
func (t *stateTables) admitCandidates() { t.mode.Candidates, t.mode.HasGrants = true, true }

// onlyAdmit has the tables ask candidates, or else be the second net.
func (t *stateTables) onlyAdmit(candidates bool) {
	t.mode.Candidates, t.mode.HasGrants = candidates, !candidates
}

func (t *stateTables) render(s layout.State) []nft.Table { return t.memo.Render(t.mode, s) }

func (t *stateTables) Setup(ctx context.Context) error {
	return t.Tables.Setup(ctx, t.memo.Layouts(t.mode))
}

func (t *stateTables) Apply(ctx context.Context, s layout.State) error {
	return t.Tables.Apply(ctx, t.render(s))
}

func (t *stateTables) Rewrite(ctx context.Context, s layout.State) error {
	return t.Tables.Rewrite(ctx, t.render(s))
}

func (t *stateTables) Verify(ctx context.Context, s layout.State) ([]string, error) {
	return t.Tables.Verify(ctx, t.render(s))
}

func (t *stateTables) AddSets(ctx context.Context, entries []string, grants []layout.GrantSet) error {
	sets := layout.EntrySets(entries...)
	for _, g := range grants {
		sets = append(sets, g.Sets()...)
	}
	return t.Tables.AddSets(ctx, layout.Inet, sets)
}
