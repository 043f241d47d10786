package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
)

// Tables are the nft tables, of which nft.Tables is one.
type Tables interface {
	DecideNamespace()
	ReadEarlier(ctx context.Context) (nft.Earlier, error)
	AddSets(ctx context.Context, entries []string, grants []nft.GrantSet) error
	ApplyEntries(ops []timed.Op)
	ListGrants(names []string, each func(set string, part []timed.Entry)) error
	Last() nft.State
	Apply(ctx context.Context, s nft.State) error
}

// Config is what a dataplane works on.
type Config struct {
	// Tables are those of the enforcer.
	Tables Tables
}

// packetFilter is the dataplane's part of the nft tables.
type packetFilter struct {
	tables Tables
	owner  dataplane.Owner
	// stale are names of grant sets of an earlier agent that are not adopted yet, and of sets that no rule asks any more.
	stale map[string]bool
	state dataplane.State       // staged or activated last
	found []dataplane.Deviation // by the last Verify
}

// New returns a dataplane that has touched nothing yet. The tables decide the Namespace tier
// from now on.
func (cfg Config) New(owner dataplane.Owner) dataplane.Interface {
	cfg.Tables.DecideNamespace()
	return &packetFilter{tables: cfg.Tables, owner: owner, stale: map[string]bool{}}
}

// Survey finds nothing: the tables look for rules that use a bit.
func (x *packetFilter) Survey(context.Context) (use *dataplane.BitUse, read func(family, table string) bool, err error) {
	return nil, func(string, string) bool { return false }, nil
}

// Recover leaves it to the tables' Setup to create what is always there.
func (x *packetFilter) Recover() ([]netip.Addr, error) {
	earlier, err := x.tables.ReadEarlier(context.Background())
	if err != nil {
		return nil, fmt.Errorf("find the grants of an earlier agent: %w", err)
	}
	for _, name := range earlier.Grants {
		x.stale[name] = true
	}
	return nil, nil
}

// Stage makes the sets of grants of a state.
func (x *packetFilter) Stage(ctx context.Context, st dataplane.State) error {
	if err := x.adopt(ctx, st); err != nil {
		return fmt.Errorf("prepare sets of grants: %w", err)
	}
	x.state = st
	return nil
}

// Isolate leaves all to the tables.
func (x *packetFilter) Isolate(dataplane.State) error { return nil }

func (x *packetFilter) Activate(ctx context.Context, st dataplane.State) (isolated bool, err error) {
	if err := x.Stage(ctx, st); err != nil {
		return false, err
	}
	return true, nil
}

// NeedResync does nothing: after a failed write the tables write everything.
func (x *packetFilter) NeedResync() {}

// RemoveStaleRules does nothing: there are no rules outside of the tables.
func (x *packetFilter) RemoveStaleRules(context.Context) error { return nil }

// ReleaseGrants leaves the sets to DestroyStale.
func (x *packetFilter) ReleaseGrants(sets []dataplane.GrantSet) {
	for _, s := range sets {
		x.stale[kernelName(s)] = true
	}
}

func (x *packetFilter) StalePods(subjects dataplane.Subjects) (out []policy.PodRef) {
	for ref := range subjects {
		id := dataplane.PodID(ref)
		for name := range x.stale {
			if strings.HasPrefix(name, id) {
				out = append(out, ref)
				break
			}
		}
	}
	return out
}

// DestroyStale writes the tables without the sets that no rule asks and that hold no grants.
func (x *packetFilter) DestroyStale() error {
	if len(x.stale) == 0 {
		return nil
	}
	s := x.tables.Last()
	x.AddTo(&s, x.state)
	if err := x.tables.Apply(context.Background(), s); err != nil {
		return err
	}
	clear(x.stale)
	return nil
}

// Suspect is never true: the kernel tells of each change of a table.
func (x *packetFilter) Suspect(dataplane.State) bool { return false }

// Remove leaves the tables, with all they hold, to their own Remove.
func (x *packetFilter) Remove(_ context.Context, withdraw func(isolated []netip.Addr) error) error {
	return withdraw(nil)
}

// sortedNames returns the keys of a map of names.
func sortedNames[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
