package xtables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
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
	// MaxPeerSets bounds how many peer sets there are; 0: maxPeerSets.
	MaxPeerSets int
}

// packetFilter is chains of iptables and sets of ipset.
type packetFilter struct {
	cfg     Config
	owner   dataplane.Owner
	rules   *rules
	static  static
	peers   peers
	grants  *grantSets
	mirrors mirrors // of peers and grants
	turns   turns
	sizes   time.Time // when the sizes of all sets are read again
	found   deviating // by the last Verify
	// stale are sets of an earlier agent that are not adopted yet, and sets of ours that no
	// rule asks any more.
	stale map[string]bool
	// missing are the port sets whose grant set the kernel refused: they open nothing.
	missing  map[policy.PodRef]map[policy.PortSet]bool
	refusals int // how often in a row the kernel refused a set
	// resync: a write failed, and a set may be gone.
	resync bool
	active bool // a state is in force
	// coexisted: another agent wrote when sets were staged.
	coexisted bool
}

// deviating is what is not as wanted, by the mechanism that repairs it.
type deviating struct {
	static []string
	sets   []mirror
	tables []Table
}

// refusalsMax is how often a set that the kernel refuses holds everything up.
const refusalsMax = 3

// New returns a dataplane that has touched nothing yet.
func (cfg Config) New(owner dataplane.Owner) dataplane.Interface {
	return &packetFilter{
		cfg: cfg, owner: owner, rules: newRules(cfg.Chains, cfg.Other, owner),
		static:  static{sets: cfg.Sets, counts: map[string]int{}},
		peers:   peers{sets: cfg.Sets, all: map[peerKey]*peerSet{}, refused: map[string]bool{}, most: cmp.Or(cfg.MaxPeerSets, maxPeerSets)},
		grants:  newGrantSets(cfg.Sets),
		mirrors: mirrors{sets: cfg.Sets, coexisting: owner.Coexisting, differing: map[string]mirror{}},
		missing: map[policy.PodRef]map[policy.PortSet]bool{}, stale: map[string]bool{},
	}
}

func (x *packetFilter) Survey(ctx context.Context) (use *dataplane.BitUse, read func(family, table string) bool, err error) {
	variants, err := x.rules.readVariants(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, all := range variants {
		for _, bit := range []uint32{x.owner.Mark, x.owner.Candidate} {
			if use := all.MarkUse(bit, ChainPrefix); use != "" {
				return &dataplane.BitUse{Bit: bit, Rule: use}, nil, nil
			}
		}
	}
	return nil, func(family, table string) bool {
		f, ours := map[string]iptables.Family{"ip": iptables.IPv4, "ip6": iptables.IPv6}[family]
		return ours && slices.ContainsFunc(variants, func(all iptables.Everything) bool { return all[f][table] != nil })
	}, nil
}

func (x *packetFilter) Recover() (out dataplane.Recovered, err error) {
	names, err := x.cfg.Sets.Names()
	if err != nil {
		return out, fmt.Errorf("find the sets of an earlier agent: %w", err)
	}
	for _, n := range names {
		if ownSet(n) {
			x.stale[n] = true
		}
	}
	for _, s := range StaticSets() {
		if err := x.cfg.Sets.Ensure(s); err != nil {
			return out, err
		}
		delete(x.stale, s.Name)
	}
	isolated, err := x.list(setSelected)
	if err != nil {
		return out, err
	}
	out.Isolated = map[netip.Addr]bool{}
	for _, a := range isolated {
		out.Isolated[a] = true
	}
	out.Owners, out.Peers = recoverRules(x.rules.survey.chains)
	return out, nil
}

// list returns the addresses of a static set of both families.
func (x *packetFilter) list(set string) (out []netip.Addr, err error) {
	for _, f := range families {
		entries, err := x.cfg.Sets.List(setPrefix(f) + set)
		if err != nil && !ipset.IsNotFound(err) {
			return nil, err
		}
		for _, e := range entries {
			out = append(out, e.Addr)
		}
	}
	return out, nil
}

// Stage leaves the chains to Activate until a first state is in force: Activate replaces
// those of an earlier agent table by table.
func (x *packetFilter) Stage(ctx context.Context, st dataplane.State) error {
	if err := x.stageSets(st); err != nil {
		return fmt.Errorf("prepare sets: %w", err)
	}
	if !x.active && x.rules.follows {
		return nil
	}
	if err := errors.Join(x.static.write(st, ahead), x.rules.write(ctx, x.wanted(st))); err != nil {
		return fmt.Errorf("prepare chains: %w", err)
	}
	return nil
}

func (x *packetFilter) wanted(st dataplane.State) wanted {
	return wanted{st.Subjects, x.peers.refused, x.missing}
}

// stageSets creates the sets of a state that are not there, and fills peer sets. A set
// that an earlier agent left is adopted with its entries.
func (x *packetFilter) stageSets(st dataplane.State) error {
	if x.resync {
		if err := x.restore(st); err != nil {
			return err
		}
		x.resync = false
	}
	clear(x.missing)
	x.coexisted = x.coexisted || x.owner.Coexisting()
	asked := askedPeers(st.Subjects)
	fresh, left := x.peers.missing(asked, x.stale)
	failed, err := x.adopt(st, left)
	if err != nil {
		return err
	}
	if err := x.peers.stage(st, asked, fresh, left); err != nil {
		failed = err
	}
	switch {
	case failed == nil:
		x.refusals = 0
		return nil
	case x.refusals < refusalsMax:
		x.refusals++
		return failed
	case x.refusals == refusalsMax:
		x.refusals++
		x.owner.Log.Error("the kernel refuses sets; what they are for stays closed, the rest goes on", "error", failed)
	}
	return nil
}

func (x *packetFilter) Refused() bool { return x.refusals > 0 || len(x.peers.refused) > 0 }

func (x *packetFilter) StageMembers(st dataplane.State) error {
	return x.peers.fill(st, askedPeers(st.Subjects))
}

func (x *packetFilter) Isolate(st dataplane.State) error {
	return errors.Join(x.static.write(st, beforeRules), x.endCoexistence())
}

func (x *packetFilter) NeedResync() { x.resync = true }

func (x *packetFilter) Activate(ctx context.Context, st dataplane.State) (isolated bool, err error) {
	if err := x.stageSets(st); err != nil {
		return false, fmt.Errorf("write sets: %w", err)
	}
	if err := x.static.write(st, beforeRules); err != nil {
		return false, fmt.Errorf("write sets: %w", err)
	}
	if err := x.rules.write(ctx, x.wanted(st)); err != nil {
		return true, fmt.Errorf("write chains: %w", err)
	}
	if err := x.static.write(st, afterRules); err != nil {
		return true, fmt.Errorf("write sets: %w", err)
	}
	return true, nil
}

// ReleasePeers leaves the sets that another program's rule asks to DestroyStale.
func (x *packetFilter) ReleasePeers(subjects dataplane.Subjects) (surplus map[policy.Peer][]netip.Addr) {
	for _, name := range x.peers.release(subjects) {
		x.stale[name] = true
	}
	surplus = map[policy.Peer][]netip.Addr{}
	for _, s := range x.peers.surplus() {
		for en := range s.stale {
			surplus[s.key.peer] = append(surplus[s.key.peer], en.Addr)
		}
	}
	return surplus
}

func (x *packetFilter) Trim() error { return x.peers.trim(x.peers.surplus()) }

func (x *packetFilter) RemoveStaleRules(ctx context.Context) error {
	x.active = true
	return x.rules.removeStale(ctx)
}

func (x *packetFilter) DestroyStale() error {
	for name := range x.stale {
		err := x.cfg.Sets.Destroy(name)
		switch {
		case err == nil, ipset.IsNotFound(err):
			delete(x.stale, name)
		case ipset.IsBusy(err):
			x.owner.Log.Warn("a set that no policy needs stays; a rule that is not ours refers to it", "set", name)
		default:
			return err
		}
	}
	return nil
}

func (x *packetFilter) StalePods(subjects dataplane.Subjects) (out []policy.PodRef) {
	pods := map[string]policy.PodRef{}
	for ref := range subjects {
		pods[dataplane.PodID(ref)] = ref
	}
	for name := range x.stale {
		if _, rest, ok := strings.Cut(name, "-"); ok {
			id, _, _ := strings.Cut(rest, "-")
			if ref, ours := pods[id]; ours {
				out = append(out, ref)
			}
		}
	}
	return out
}

func (x *packetFilter) Remove(ctx context.Context, withdraw func(isolated []netip.Addr) error) error {
	first := x.rules.removeAll(ctx)
	if x.cfg.RemoveChains != nil {
		first = cmp.Or(first, x.cfg.RemoveChains(ctx, ChainPrefix))
	}
	if x.cfg.Sets == nil {
		return cmp.Or(first, withdraw(nil))
	}
	isolated, err := x.list(setSelected)
	if err == nil {
		err = withdraw(isolated)
	}
	return cmp.Or(first, err, x.removeSets())
}

func (x *packetFilter) removeSets() error {
	names, err := x.cfg.Sets.Names()
	if err != nil {
		return err
	}
	for _, n := range names {
		if !ownSet(n) {
			continue
		}
		if err := x.cfg.Sets.Destroy(n); err != nil && !ipset.IsNotFound(err) {
			return fmt.Errorf("remove set (is a rule of another program asking it?): %w", err)
		}
	}
	return nil
}

func (x *packetFilter) Sizes() (sets, entries int) {
	for _, s := range x.peers.all {
		entries += s.size
	}
	return len(x.peers.all), entries
}

func (x *packetFilter) ListRecheck() ([]netip.Addr, error) { return x.list(setRecheck) }

func (x *packetFilter) AddRecheck(addrs ...netip.Addr) error {
	return x.writeRecheck(x.cfg.Sets.Add, addrs)
}

func (x *packetFilter) RemoveRecheck(addrs ...netip.Addr) error {
	return x.writeRecheck(x.cfg.Sets.Delete, addrs)
}

// writeRecheck changes the recheck set of one family. A set that refuses an entry may be
// gone.
func (x *packetFilter) writeRecheck(write func(set string, entries ...ipset.Entry) error, addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	entries := make([]ipset.Entry, len(addrs))
	for i, a := range addrs {
		entries[i].Addr = a
	}
	err := write(setPrefix(versionOf(addrs[0]))+setRecheck, entries...)
	x.resync = x.resync || err != nil
	return err
}
