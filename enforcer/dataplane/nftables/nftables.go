package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/entries"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// Tables are the nft tables, of which nft.Tables is one.
type Tables interface {
	DecideNamespace()
	GrantSets(ctx context.Context) ([]string, error)
	AddSets(ctx context.Context, entries []string, grants []nft.GrantSet) error
	entries.Tables
}

// Config is what a dataplane works on.
type Config struct {
	// Tables are those of the enforcer.
	Tables Tables
}

// packetFilter is the dataplane's part of the nft tables.
type packetFilter struct {
	*entries.Store
	tables Tables
	// left are names of grant sets of an earlier agent that are not adopted.
	left map[string]bool
}

// New returns a dataplane that has touched nothing yet. The tables decide the Namespace tier
// from now on.
func (cfg Config) New(dataplane.Owner) dataplane.Interface {
	cfg.Tables.DecideNamespace()
	return &packetFilter{Store: entries.New(cfg.Tables, nil), tables: cfg.Tables, left: map[string]bool{}}
}

// Recover implements dataplane.Interface. The tables look for rules that use a bit.
func (x *packetFilter) Recover(ctx context.Context) (out dataplane.Recovered, err error) {
	left, err := x.tables.GrantSets(ctx)
	if err != nil {
		return out, fmt.Errorf("find the grants of an earlier agent: %w", err)
	}
	for _, name := range left {
		x.left[name] = true
	}
	return out, nil
}

// Apply implements dataplane.Interface: the state of the tables has the subjects and their rules,
// and the sets of grants come before it.
func (x *packetFilter) Apply(ctx context.Context, st dataplane.State, to dataplane.Phase) error {
	if to == dataplane.Isolate {
		return nil
	}
	if err := x.adopt(ctx, st); err != nil {
		return fmt.Errorf("prepare sets of grants: %w", err)
	}
	return nil
}

// Verify implements dataplane.Interface. Package enforcer compares the tables and the grants.
func (x *packetFilter) Verify(context.Context, dataplane.State, bool) ([]string, error) {
	return nil, nil
}

// Shrink implements dataplane.Interface. The tables removed the sets that their state does not have.
func (x *packetFilter) Shrink(context.Context, []dataplane.GrantSet) error {
	clear(x.left)
	return nil
}

// StalePods implements dataplane.Interface.
func (x *packetFilter) StalePods(subjects dataplane.Subjects) (out []policy.PodRef) {
	for ref := range subjects {
		id := dataplane.PodID(ref)
		for name := range x.left {
			if strings.HasPrefix(name, id) {
				out = append(out, ref)
				break
			}
		}
	}
	return out
}

// Remove leaves the tables, with all they hold, to their own Remove.
func (x *packetFilter) Remove(_ context.Context, withdraw func(isolated []netip.Addr) error) error {
	return withdraw(nil)
}
