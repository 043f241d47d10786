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
	ReadPeers(ctx context.Context, sets []nft.PeerSet) ([]nft.PeerSet, error)
	AddGrantSets(ctx context.Context, sets []nft.GrantSet) error
	ApplyEntries(ops []timed.Op)
	ListGrants(names []string, each func(set string, part []timed.Entry)) error
	ListRecheck(ctx context.Context) ([]netip.Addr, error)
	ChangeRecheck(ctx context.Context, addrs []netip.Addr, remove bool) error
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
	peers  peers
	// lists are the rule lists as they were rendered before.
	lists map[*dataplane.RuleList]nft.RuleList
	// stale are names of grant sets of an earlier agent that are not adopted yet. follows: it
	// has tables.
	stale   map[string]bool
	follows bool
	active  bool                  // a state is in force
	state   dataplane.State       // staged or activated last
	found   []dataplane.Deviation // by the last Verify
}

// New returns a dataplane that has touched nothing yet. The tables decide the Namespace tier
// from now on.
func (cfg Config) New(owner dataplane.Owner) dataplane.Interface {
	cfg.Tables.DecideNamespace()
	return &packetFilter{tables: cfg.Tables, owner: owner, peers: peers{}, lists: map[*dataplane.RuleList]nft.RuleList{}, stale: map[string]bool{}}
}

// Survey finds nothing: the tables look for rules that use a bit.
func (x *packetFilter) Survey(context.Context) (use *dataplane.BitUse, read func(family, table string) bool, err error) {
	return nil, func(string, string) bool { return false }, nil
}

// Recover leaves it to the tables' Setup to create what is always there.
func (x *packetFilter) Recover() (out dataplane.Recovered, err error) {
	earlier, err := x.tables.ReadEarlier(context.Background())
	if err != nil {
		return out, fmt.Errorf("find the rules of an earlier agent: %w", err)
	}
	x.follows = earlier.Tables
	for _, name := range earlier.Grants {
		x.stale[name] = true
	}
	out = dataplane.Recovered{Isolated: map[netip.Addr]bool{}, Owners: earlier.Subjects, Peers: earlier.Lists}
	for _, a := range earlier.Selected {
		out.Isolated[a] = true
	}
	for a, list := range out.Peers {
		out.Peers[a] = strings.TrimPrefix(list, everything)
	}
	return out, nil
}

// Stage leaves the tables of an earlier agent to the first state that is activated, which
// replaces them whole.
func (x *packetFilter) Stage(ctx context.Context, st dataplane.State) error {
	if err := x.stageSets(ctx, st); err != nil {
		return err
	}
	if !x.active && x.follows {
		return nil
	}
	return x.apply(ctx)
}

// stageSets makes the sets of a state known.
func (x *packetFilter) stageSets(ctx context.Context, st dataplane.State) error {
	if err := x.adopt(ctx, st); err != nil {
		return fmt.Errorf("prepare sets of grants: %w", err)
	}
	if err := x.readPeers(ctx, st); err != nil {
		return fmt.Errorf("read sets of peers: %w", err)
	}
	x.peers.stage(st)
	x.state = st
	return nil
}

// apply brings the state's subjects into force, and leaves all else in the tables as it is.
func (x *packetFilter) apply(ctx context.Context) error {
	s := x.tables.Last()
	if x.active {
		x.addRules(&s, x.state)
	} else {
		x.AddTo(&s, x.state)
	}
	return x.tables.Apply(ctx, s)
}

func (x *packetFilter) StageMembers(st dataplane.State) error {
	x.peers.stage(st)
	x.state = st
	return x.apply(context.Background())
}

// Refused is never true: what the kernel refuses is an error of the tables.
func (x *packetFilter) Refused() bool { return false }

// Isolate leaves all to the tables.
func (x *packetFilter) Isolate(dataplane.State) error { return nil }

func (x *packetFilter) Activate(ctx context.Context, st dataplane.State) (isolated bool, err error) {
	if err := x.stageSets(ctx, st); err != nil {
		return false, err
	}
	return true, nil
}

// NeedResync does nothing: after a failed write the tables write everything.
func (x *packetFilter) NeedResync() {}

func (x *packetFilter) RemoveStaleRules(context.Context) error {
	x.active = true
	return nil
}

func (x *packetFilter) ReleasePeers(subjects dataplane.Subjects) map[policy.Peer][]netip.Addr {
	return x.peers.release(subjects)
}

func (x *packetFilter) Trim() error {
	x.peers.trim()
	return x.apply(context.Background())
}

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
	if err := x.apply(context.Background()); err != nil {
		return err
	}
	clear(x.stale)
	return nil
}

func (x *packetFilter) ListRecheck() ([]netip.Addr, error) {
	return x.tables.ListRecheck(context.Background())
}

func (x *packetFilter) AddRecheck(addrs ...netip.Addr) error {
	return x.tables.ChangeRecheck(context.Background(), addrs, false)
}

func (x *packetFilter) RemoveRecheck(addrs ...netip.Addr) error {
	return x.tables.ChangeRecheck(context.Background(), addrs, true)
}

// Suspect is never true: the kernel tells of each change of a table.
func (x *packetFilter) Suspect(dataplane.State) bool { return false }

func (x *packetFilter) Sizes() (sets, entries int) { return x.peers.sizes() }

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
