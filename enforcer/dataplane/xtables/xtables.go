package xtables

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/grants"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
)

// Config is what a Dataplane works on.
type Config struct {
	Sets ipset.Interface
	// Chains are those of the variant of iptables that is written, Other those of the
	// other variant, nil where the node has none: nothing is written there.
	Chains, Other iptables.Interface
	Mark          uint32
	Now           func() time.Time
	Log           *slog.Logger
	// Grants is the owner of the grant sets.
	Grants *grants.Table
	// Coexisting tells whether another agent writes too.
	Coexisting func() bool
	// Repaired is told of each repair.
	Repaired func(what string)
}

// Dataplane is chains of iptables and sets of ipset.
type Dataplane struct {
	cfg    Config
	rules  *rules
	static static
	peers  peers
	turns  turns
	found  deviating // by the last Verify
	// stale are sets of an earlier agent that are not adopted yet, and sets of ours that no
	// rule asks any more.
	stale map[string]bool
	// missing are the port sets whose grant set the kernel refused: they open nothing.
	missing  map[policy.PodRef]map[policy.PortSet]bool
	refusals int // how often in a row the kernel refused a set
	// resync: a write failed, and a set may be gone.
	resync bool
	active bool // a state is in force
}

// deviating is what is not as wanted, by the mechanism that repairs it.
type deviating struct {
	static []string
	peers  []*peerSet
	grants []*grants.Set
	tables []Table
}

// refusalsMax is how often a set that the kernel refuses holds everything up.
const refusalsMax = 3

// New returns a dataplane that has touched nothing yet.
func New(cfg Config) *Dataplane {
	return &Dataplane{
		cfg: cfg, rules: newRules(cfg.Chains, cfg.Other, cfg.Mark, cfg.Now),
		static:  static{sets: cfg.Sets, counts: map[string]int{}},
		peers:   peers{sets: cfg.Sets, coexisting: cfg.Coexisting, all: map[peerKey]*peerSet{}, refused: map[string]bool{}, most: peerSetsMost, differing: map[*peerSet]bool{}},
		missing: map[policy.PodRef]map[policy.PortSet]bool{}, stale: map[string]bool{},
	}
}

// Survey reads the chains of each variant of iptables, those that are written last. It
// comes before everything else.
func (x *Dataplane) Survey(ctx context.Context) ([]iptables.Everything, error) {
	return x.rules.readVariants(ctx)
}

// Recover creates the sets that are always there, and reads what an earlier agent left. It
// follows Survey.
func (x *Dataplane) Recover() (out dataplane.Recovered, err error) {
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
	isolated, err := x.Isolated()
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

// Isolated returns the addresses that the kernel has as default-deny.
func (x *Dataplane) Isolated() (out []netip.Addr, err error) {
	for _, f := range families {
		entries, err := x.cfg.Sets.List(setPrefix(f) + setSelected)
		if err != nil && !ipset.IsNotFound(err) {
			return nil, err
		}
		for _, e := range entries {
			out = append(out, e.Addr)
		}
	}
	return out, nil
}

// Stage makes sets and rules ready for a state: nothing is denied that was open. A set that
// the kernel refuses is an error a few times; then what it is for stays closed, and
// everything else goes on. Until a first state is in force the chains are left to
// Activate, which replaces those of an earlier agent table by table.
func (x *Dataplane) Stage(ctx context.Context, st dataplane.State) error {
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

func (x *Dataplane) wanted(st dataplane.State) wanted {
	return wanted{st.Subjects, x.peers.refused, x.missing}
}

// stageSets creates the sets of a state that are not there, and fills peer sets. A set
// that an earlier agent left is adopted with its entries.
func (x *Dataplane) stageSets(st dataplane.State) error {
	if x.resync {
		if err := x.restore(); err != nil {
			return err
		}
		x.resync = false
	}
	clear(x.missing)
	missing := x.cfg.Grants.Missing(grantKeys(st.Subjects), x.stale)
	asked := askedPeers(st.Subjects)
	fresh, left := x.peers.missing(asked, x.stale)
	if missing.NeedsListing() || len(left) > 0 {
		err := x.cfg.Sets.ListAll(func(head ipset.Set, entries []ipset.Entry) {
			if p := left[head.Name]; p != nil {
				p.take(head, entries)
			} else {
				missing.Read(head, entries)
			}
		})
		if err != nil {
			return err
		}
	}
	var failed error
	added := missing.Add(func(key grants.Key, err error) {
		if x.missing[key.Pod] == nil {
			x.missing[key.Pod] = map[policy.PortSet]bool{}
		}
		x.missing[key.Pod][key.Ports] = true
		failed = fmt.Errorf("set of pod %s for %s: %w", key.Pod, key.Ports, err)
	})
	for _, name := range added {
		delete(x.stale, name)
	}
	for name := range left {
		delete(x.stale, name)
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
		x.cfg.Log.Error("the kernel refuses sets; what they are for stays closed, the rest goes on", "error", failed)
	}
	return nil
}

// grantKeys yields the grant sets that the rules of subjects ask.
func grantKeys(subjects dataplane.Subjects) iter.Seq[grants.Key] {
	return func(yield func(grants.Key) bool) {
		for ref, s := range subjects {
			for _, ports := range s.Grants {
				for _, v6 := range []bool{false, true} {
					if !yield(grants.Key{Pod: ref, Ports: ports, IPv6: v6}) {
						return
					}
				}
			}
		}
	}
}

// LimitPeerSets bounds how many peer sets there are.
func (x *Dataplane) LimitPeerSets(most int) { x.peers.most = most }

// Refused tells whether the kernel refuses a set of the state that was written last.
func (x *Dataplane) Refused() bool { return x.refusals > 0 || len(x.peers.refused) > 0 }

// StageMembers fills the peer sets of subjects whose rules and other sets are written.
func (x *Dataplane) StageMembers(st dataplane.State) error {
	err := x.peers.fill(st, askedPeers(st.Subjects))
	x.peers.noteSizes()
	return err
}

// Isolate brings into force who is isolated, and no rule.
func (x *Dataplane) Isolate(st dataplane.State) error { return x.static.write(st, beforeRules) }

// NeedResync has the next write look for sets that are gone.
func (x *Dataplane) NeedResync() { x.resync = true }

// Activate makes sets and rules hold a state. isolated tells, also with an error, whether
// it is in force who is isolated.
func (x *Dataplane) Activate(ctx context.Context, st dataplane.State) (isolated bool, err error) {
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

// ReleasePeers destroys the peer sets that no rule of subjects asks, which must have been
// written. The sets that another program's rule asks are left to DestroyStale.
func (x *Dataplane) ReleasePeers(subjects dataplane.Subjects) {
	for _, name := range x.peers.release(subjects) {
		x.stale[name] = true
	}
}

// Surplus returns the members of peer sets that the state in force has no more; of networks
// their first addresses.
func (x *Dataplane) Surplus() map[policy.Peer][]netip.Addr {
	out := map[policy.Peer][]netip.Addr{}
	for _, s := range x.peers.surplus() {
		for en := range s.stale {
			out[s.key.peer] = append(out[s.key.peer], en.Addr)
		}
	}
	return out
}

// Trim takes the members of Surplus out of the peer sets.
func (x *Dataplane) Trim() error { return x.peers.trim(x.peers.surplus()) }

// RemoveStaleRules removes the chains that earlier agents left outside of what is written.
// It is called when a state is in force in all of the kernel. Until it has succeeded once,
// the sets that these chains ask cannot be destroyed.
func (x *Dataplane) RemoveStaleRules(ctx context.Context) error {
	x.active = true
	return x.rules.removeStale(ctx)
}

// Discard has DestroyStale destroy sets that no rule asks any more.
func (x *Dataplane) Discard(names []string) {
	for _, name := range names {
		x.stale[name] = true
	}
}

// DestroyStale destroys the sets that no rule asks any more.
func (x *Dataplane) DestroyStale() error {
	for name := range x.stale {
		err := x.cfg.Sets.Destroy(name)
		switch {
		case err == nil, ipset.IsNotFound(err):
			delete(x.stale, name)
		case ipset.IsBusy(err):
			x.cfg.Log.Warn("a set that no policy needs stays; a rule that is not ours refers to it", "set", name)
		default:
			return err
		}
	}
	return nil
}

// HasStale returns the pods of which a stale set held grants.
func (x *Dataplane) HasStale(subjects dataplane.Subjects) (out []policy.PodRef) {
	pods := map[string]policy.PodRef{}
	for ref := range subjects {
		pods[PodID(ref)] = ref
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

// Remove removes our chains from all tables, and then our sets. It goes on after an error
// and returns the first; between is called between the two.
func (x *Dataplane) Remove(ctx context.Context, between func() error) error {
	first := x.rules.removeAll(ctx)
	for _, step := range []func() error{between, x.removeSets} {
		if err := step(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (x *Dataplane) removeSets() error {
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

// Sizes returns how many peer sets there are, and how many entries they have.
func (x *Dataplane) Sizes() (sets, entries int) {
	for _, s := range x.peers.all {
		entries += s.size
	}
	return len(x.peers.all), entries
}
