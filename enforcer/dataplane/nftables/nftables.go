package nftables

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/entries"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nft"
)

// Config is what a dataplane works on.
type Config struct {
	// Tables are those of the enforcer, and Entries writes and lists their entries, nil: they do.
	Tables  *nft.Tables
	Entries entries.Tables
}

// packetFilter is the dataplane's part of the nft tables.
type packetFilter struct {
	*entries.Store
	tables layout.InForce
	now    func() time.Time
	grants dataplane.Grants // of the last Apply
	// kernel are the names of the sets of grants that the kernel may have.
	kernel map[string]bool
}

// New returns a dataplane that has touched nothing yet.
func (cfg Config) New(owner dataplane.Owner) dataplane.Interface {
	if cfg.Entries == nil {
		cfg.Entries = cfg.Tables.Store
	}
	return &packetFilter{Store: entries.New(cfg.Entries, nil), tables: layout.InForce{Tables: cfg.Tables}, now: owner.Now, kernel: map[string]bool{}}
}

// InTables implements dataplane.InTables.
func (x *packetFilter) InTables() {}

// Named implements dataplane.Interface.
func (x *packetFilter) Named(g dataplane.GrantSet) dataplane.GrantSet { return entries.Named(g) }

// Recover implements dataplane.Interface. The tables look for rules that use a bit.
func (x *packetFilter) Recover(ctx context.Context) (out dataplane.Recovered, err error) {
	names, err := x.tables.GrantSets(ctx)
	if err != nil {
		return out, fmt.Errorf("find the grants of an earlier agent: %w", err)
	}
	for _, name := range names {
		x.kernel[name] = true
	}
	return out, nil
}

// known returns the sets whose grants are known, by name.
func (x *packetFilter) known() map[string]layout.GrantSet {
	out := map[string]layout.GrantSet{}
	for g := range x.grants.Bounds() {
		if name := entries.SetOf(g); out[name].Name == "" {
			out[name] = ruleset.GrantSet(g)
		}
	}
	return out
}

// Apply implements dataplane.Interface: the state of the tables has the subjects and their rules,
// and the sets of grants come before it. It makes those that the grants do not have, and takes in
// what was left in them. Grants on ports that no rule asks are taken in too, to be taken back.
func (x *packetFilter) Apply(ctx context.Context, st dataplane.State, to dataplane.Phase) error {
	switch x.grants = st.Grants; to {
	case dataplane.Isolate:
		return nil
	case dataplane.Shrink: // the tables removed the sets that their state does not have
		known := x.known()
		maps.DeleteFunc(x.kernel, func(name string, _ bool) bool { return known[name].Name == "" })
		return nil
	}
	held := map[dataplane.GrantSet][]dataplane.Grant{}
	for _, g := range st.Missing(entries.Named) {
		held[g] = nil
	}
	if len(held) == 0 {
		return nil
	}
	sets := x.known() // the tables forget a set that is not added again
	var left []dataplane.GrantSet
	for g := range held {
		if name := entries.SetOf(g); sets[name].Name == "" {
			if sets[name] = ruleset.GrantSet(g); x.kernel[name] {
				left = append(left, g)
			}
			x.kernel[name] = true
		}
	}
	listed := x.now()
	var all []*nft.Set
	for _, s := range sets {
		all = append(all, s.Sets()...)
	}
	err := x.tables.Tables.AddSets(ctx, layout.Inet, all)
	if err == nil {
		err = x.ListGrants(left, func(g dataplane.GrantSet, part []dataplane.Grant) { held[g] = append(held[g], part...) })
	}
	if err != nil {
		return fmt.Errorf("prepare sets of grants: %w", err)
	}
	st.Grants.Adopt(held, listed)
	return nil
}

// Verify implements dataplane.Interface. Package enforcer compares the tables and the grants.
func (x *packetFilter) Verify(context.Context, dataplane.State, bool) ([]string, error) {
	return nil, nil
}

// StalePods implements dataplane.Interface.
func (x *packetFilter) StalePods() map[string]bool {
	known, out := x.known(), map[string]bool{}
	for name := range x.kernel {
		if known[name].Name == "" {
			id, _, _ := strings.Cut(name, "-")
			out[id] = true
		}
	}
	return out
}

// Remove leaves the tables, with all they hold, to their own Remove.
func (x *packetFilter) Remove(context.Context) ([]netip.Addr, error) { return nil, nil }
