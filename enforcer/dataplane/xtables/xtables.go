package xtables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
)

// Config is what a dataplane works on. Without Sets or Chains, Remove alone may be called.
type Config struct {
	Sets ipset.Interface
	// Chains are those of the variant of iptables that is written, Other those of the
	// other variant, nil where the node has none: nothing is written there.
	Chains, Other iptables.Interface
	// RemoveChains removes chains by the prefix of their names that iptables wrote to nftables,
	// also where its programs are missing. It may be nil.
	RemoveChains func(ctx context.Context, prefix string) error
}

// Left tells whether an agent left objects: its sets go last.
func (cfg Config) Left(context.Context) (bool, error) {
	if cfg.Sets == nil {
		return false, nil
	}
	own, err := cfg.ownSets()
	return len(own) > 0, err
}

// ownSets returns the names of our sets that the kernel has.
func (cfg Config) ownSets() ([]string, error) {
	sizes, err := cfg.Sets.Sizes()
	maps.DeleteFunc(sizes, func(name string, _ int) bool { return !ownSet(name) })
	return slices.Sorted(maps.Keys(sizes)), err
}

// packetFilter is chains of iptables and sets of ipset.
type packetFilter struct {
	cfg     Config
	owner   dataplane.Owner
	rules   *rules
	mirrors mirrors
	// kernel are the names of the sets of grants that the kernel has. The single ports of a pod share one
	// set of each family, whose entries have the port; each other port set has one of its own. Those that the
	// grants do not have are of an earlier agent and not adopted yet, or no rule asks them any more.
	kernel map[string]bool
	grants dataplane.Grants // of the last Apply
	// room is ApplyGrants', which has one call under way at a time.
	room struct {
		ops     []ipset.Op
		entries []ipset.Entry
	}
	// refused are the errors of grant sets, by name, that the kernel did not create or repair: no rule
	// asks them.
	refused map[string]error
	// resync: a set deviates, may be gone, after a failed write, or was never made.
	resync atomic.Bool
}

// New returns a dataplane that has touched nothing yet.
func (cfg Config) New(owner dataplane.Owner) dataplane.Interface {
	x := &packetFilter{
		cfg: cfg, owner: owner, rules: newRules(cfg.Chains, cfg.Other, owner),
		kernel: map[string]bool{}, mirrors: newMirrors(cfg.Sets, owner.Coexisting, owner.Now),
		refused: map[string]error{},
	}
	x.resync.Store(true)
	return x
}

// Recover implements dataplane.Interface. The first Apply creates the static sets.
func (x *packetFilter) Recover(ctx context.Context) (out dataplane.Recovered, err error) {
	variants, err := x.rules.readVariants(ctx)
	if err != nil {
		return out, err
	}
	for _, all := range variants {
		for _, bit := range []uint32{x.owner.Mark, x.owner.Candidate, x.owner.Accepted} {
			if use := all.MarkUse(bit, ChainPrefix); use != "" {
				return out, &dataplane.BitUse{Bit: bit, Rule: use}
			}
		}
	}
	out.Read = func(family, table string) bool {
		f, ours := map[string]iptables.Family{"ip": iptables.IPv4, "ip6": iptables.IPv6}[family]
		return ours && slices.ContainsFunc(variants, func(all iptables.Everything) bool { return all[f][table] != nil })
	}
	own, err := x.cfg.ownSets()
	if err != nil {
		return out, fmt.Errorf("find the sets of an earlier agent: %w", err)
	}
	for _, name := range own {
		x.kernel[name] = true
	}
	for _, s := range StaticSets() {
		delete(x.kernel, s.Name)
	}
	out.Isolated, err = x.isolated()
	return out, err
}

// isolated returns the addresses that are isolated in the kernel.
func (x *packetFilter) isolated() (out []netip.Addr, err error) {
	for _, f := range families {
		_, entries, err := ipset.Read(x.cfg.Sets, setPrefix(f)+setSelected)
		if err != nil && !ipset.IsNotFound(err) {
			return nil, err
		}
		for _, e := range entries {
			out = append(out, e.Addr)
		}
	}
	return out, nil
}

// Apply implements dataplane.Interface. After a failed write a set may be gone. The chains of an
// earlier agent stay until Commit, which replaces them table by table.
func (x *packetFilter) Apply(ctx context.Context, st dataplane.State, to dataplane.Phase) (err error) {
	defer func() {
		if err != nil {
			x.resync.Store(true)
		}
	}()
	switch x.grants = st.Grants; to {
	case dataplane.Isolate:
		return x.mirrors.writeStatic(st, beforeRules)
	case dataplane.Shrink:
		return x.shrink(ctx)
	}
	if err := x.stageSets(st); err != nil {
		return fmt.Errorf("write sets: %w", err)
	}
	if to == dataplane.Commit {
		err = x.commit(ctx, st)
	} else if !x.rules.follows {
		if err = errors.Join(x.mirrors.writeStatic(st, ahead), x.rules.write(ctx, wanted{st.Subjects, x.refused})); err != nil {
			err = fmt.Errorf("prepare chains: %w", err)
		}
	}
	if names := slices.Sorted(maps.Keys(x.refused)); err == nil && len(names) > 0 {
		err = dataplane.Refused{Err: fmt.Errorf("%w (%d sets in all)", x.refused[names[0]], len(names)), Sets: names}
	}
	return err
}

// commit brings a state with its sets into force.
func (x *packetFilter) commit(ctx context.Context, st dataplane.State) error {
	if err := x.mirrors.writeStatic(st, beforeRules); err != nil {
		return fmt.Errorf("write sets: %w", err)
	}
	if err := x.rules.write(ctx, wanted{st.Subjects, x.refused}); err != nil {
		return fmt.Errorf("write chains: %w", err)
	}
	if err := x.mirrors.writeStatic(st, afterRules); err != nil {
		return fmt.Errorf("write sets: %w", err)
	}
	return nil
}

// stageSets repairs sets of grants that may deviate, and creates those of a state that are not
// there. A set that an earlier agent left is adopted with its entries.
func (x *packetFilter) stageSets(st dataplane.State) error {
	clear(x.refused)
	if x.resync.Swap(false) { // Apply sets it again after an error
		if err := x.mirrors.ensureStatic(); err != nil {
			return err
		}
		wrong, err := x.mirrors.verify(mirrorsOf(st.Grants))
		if err != nil {
			return err
		}
		for _, s := range wrong { // one that cannot be repaired closes its pod alone
			if _, err := x.mirrors.repair(s); err != nil {
				x.refuse(s.set, err)
			}
		}
	}
	return x.adopt(st)
}

// refuse has no rule ask a set of grants.
func (x *packetFilter) refuse(s dataplane.GrantSet, err error) {
	x.refused[s.Name] = fmt.Errorf("grants of pod %s: %w", s.Pod, err)
}

// stale returns the sets of the kernel that the grants do not have.
func (x *packetFilter) stale() (names []string) {
	known := map[string]bool{}
	for set := range x.grants.Bounds() {
		known[set.Name] = true
	}
	for name := range x.kernel {
		if !known[name] {
			names = append(names, name)
		}
	}
	return names
}

// shrink removes what a state in force does not need. The rules go first: the sets that they ask cannot be destroyed.
func (x *packetFilter) shrink(ctx context.Context) error {
	x.rules.follows = false
	if err := x.rules.removeStale(ctx); err != nil {
		return fmt.Errorf("remove what an earlier agent left elsewhere: %w", err)
	}
	var errs []error
	for _, name := range x.stale() {
		err := x.cfg.Sets.Destroy(name)
		switch {
		case err == nil, ipset.IsNotFound(err):
			delete(x.kernel, name)
		case ipset.IsBusy(err):
			x.owner.Log.Warn("a set that no policy needs stays; a rule that is not ours refers to it", "set", name)
		default:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Verify implements dataplane.Interface.
func (x *packetFilter) Verify(ctx context.Context, st dataplane.State, all bool) (objects []string, err error) {
	sets, err := x.mirrors.verify(x.mirrors.of(st))
	if err != nil {
		return nil, err
	}
	all = all || slices.ContainsFunc(sets, func(s *mirror) bool { return s.fixed != nil })
	tables, err := x.rules.verify(ctx, all)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		objects = append(objects, t.String())
	}
	for _, s := range sets {
		objects = append(objects, "set "+s.name)
		x.resync.Store(true)
	}
	return objects, nil
}

// Changed implements dataplane.Poller.
func (x *packetFilter) Changed(st dataplane.State) bool {
	return len(x.rules.suspects()) > 0 || x.mirrors.changed(st)
}

// StalePods implements dataplane.Interface.
func (x *packetFilter) StalePods() map[string]bool {
	out := map[string]bool{}
	for _, name := range x.stale() {
		id, _, _ := strings.Cut(name[len(setPrefix(iptables.IPv4)):], "-")
		out[id] = true
	}
	return out
}

func (x *packetFilter) Remove(ctx context.Context) (isolated []netip.Addr, err error) {
	err = x.rules.removeAll(ctx)
	if x.cfg.RemoveChains != nil {
		err = cmp.Or(err, x.cfg.RemoveChains(ctx, ChainPrefix))
	}
	if x.cfg.Sets == nil {
		return nil, err
	}
	isolated, failed := x.isolated()
	return isolated, cmp.Or(err, failed, x.removeSets())
}

func (x *packetFilter) removeSets() error {
	own, first := x.cfg.ownSets()
	for _, name := range own {
		if err := x.cfg.Sets.Destroy(name); err != nil && !ipset.IsNotFound(err) {
			first = cmp.Or(first, fmt.Errorf("remove set (is a rule of another program asking it?): %w", err))
		}
	}
	return first
}
