package grants

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/share"
)

// The numbers of grants that pods may hold unless the Corefile says otherwise: of one pod, and of
// all beyond LeastPerPod of each. A grant costs about 200 bytes of the agent's memory.
const (
	DefaultPerPod = 8192
	DefaultAll    = 262144
	LeastPerPod   = 256
)

// Grants have bounds by their kind: those of rules that accept, and those of lasting rules.
const accepts, lasts = 0, 1

func (s *set) kind() int {
	if s.key.Rule.Lasting() {
		return lasts
	}
	return accepts
}

func boundsOf(perPod, all int) [2]share.Bound {
	ofAccepts := share.Bound{Resource: "grants", Least: min(LeastPerPod, perPod), Each: perPod, All: all}
	ofLasting := share.Bound{Resource: "entries of rules that deny or pass", Least: min(LeastPerPod, perPod), Each: perPod, All: all}
	return [...]share.Bound{accepts: ofAccepts, lasts: ofLasting}
}

// SetBounds changes how many grants a pod may hold, and all pods beyond LeastPerPod of each. They
// count for the grants that follow.
func (t *Table) SetBounds(perPod, all int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bounds = boundsOf(perPod, all)
	t.noteShare()
}

// Share returns how many grants one answer may need at most: half of what a pod may have, so that
// an answer does not end all that is in use.
func (t *Table) Share() int { return int(t.share.Load()) }

// noteShare notes how many grants an answer may need after the last change. The caller holds mu.
func (t *Table) noteShare() {
	b := &t.bounds[accepts]
	t.share.Store(int64(max(2, b.Least, min(b.Each, b.All-t.held[accepts])) / 2))
}

// spareShare is the part of a pod's share that an end of grants leaves free, one in so many: looking
// for those that end takes milliseconds.
const spareShare = 8

// AtBound returns the pods that hold as many grants as they may, but for the part that an end of
// grants leaves free.
func (t *Table) AtBound() (pods []policy.PodRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ref, p := range *t.pods.Load() {
		for kind, own := range p.held {
			if own > 0 && t.bounds[kind].Room(own, t.held[kind])*(spareShare-1) <= own {
				pods = append(pods, ref)
				break
			}
		}
	}
	slices.SortFunc(pods, policy.PodRef.Compare)
	return pods
}

// count notes that the set has n entries more. The caller holds Table.mu.
func (s *set) count(n int) {
	s.of.held[s.kind()] += n
	s.table.held[s.kind()] += n
}

// errFull is the error of a grant of a lasting rule for which its pod has no room.
var errFull = fmt.Errorf("the pod has as many addresses of rules that deny or pass as it may, which do not end before their time")

// makeRoom ends grants of the pods for which the batch has more than they may hold: those that
// are not in use first, and of these the ones that end soonest. More end than needed, so that a
// pod at its bound is not searched for every answer. Connections that they admitted stay. Grants
// of lasting rules do not end. The batch is without the pods that get none. The caller holds mu.
func (t *Table) makeRoom() {
	b := &t.batch
	for i := range b.sets {
		b.sets[i].set.of.adds[b.sets[i].set.kind()] += b.sets[i].added
	}
	for i := range b.sets {
		s := b.sets[i].set
		adds := s.of.adds
		s.of.adds = [2]int{}
		bound := &t.bounds[accepts]
		if s.of.held[accepts]+adds[accepts] > bound.Each*3/4 {
			t.listConnectionsSoon()
		}
		n := adds[accepts] - bound.Room(s.of.held[accepts], t.held[accepts])
		if t.listingSoon.Load() {
			n -= bound.Each / 4 // until it is known what is in use
		}
		if adds[lasts] > 0 && adds[lasts] > t.bounds[lasts].Room(s.of.held[lasts], t.held[lasts]) {
			b.without[s.key.Pod] = errFull
		} else if adds[accepts] > 0 && n > 0 {
			t.evict(s.of.sets, n+bound.Each/spareShare)
		}
	}
	for i := range b.sets {
		s := b.sets[i].set
		n := len(s.entries) + b.sets[i].added - t.cfg.SetMax
		if t.cfg.SetMax > 0 && n > 0 && s.key.Rule == "" && b.without[s.key.Pod] == nil {
			t.evict([]*set{s}, n+t.cfg.SetMax/64)
		}
	}
}

// evict ends n of the grants of sets of a pod, which gets none where the kernel refuses.
func (t *Table) evict(sets []*set, n int) {
	if err := t.endEarly(t.soonest(sets, n)); err != nil {
		t.batch.without[sets[0].key.Pod] = err
	}
}

// listConnectionsSoon has connections listed ahead of an end of grants that are not in use, unless
// the last listing counts still. Nothing waits for it.
func (t *Table) listConnectionsSoon() {
	last := t.tracked.Load()
	if t.cfg.Connections == nil || last != nil && t.batch.at.now-last.listed < monotonic(connectionsEvery) || !t.listingSoon.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer t.listingSoon.Store(false)
		_ = t.listConnections() // without it no connection is known, and the judging of uses reports it
	}()
}

// soonest returns n of the grants of sets that are to end first, or all if there are fewer:
// those that are not in use, each by its deadline, before the others. Those of lasting rules and
// of requests that are being written are left out.
func (t *Table) soonest(sets []*set, n int) []*grant {
	asked := map[netip.Addr]bool{}
	for _, r := range t.batch.requests {
		if r.grants[0].Pod == sets[0].key.Pod {
			for _, a := range r.addrs {
				asked[a] = true
			}
		}
	}
	var all []*grant
	for _, s := range sets {
		if s.key.Rule.Lasting() {
			continue
		}
		for _, g := range s.entries {
			if a := g.address(); !asked[a] && t.batch.next(s, a) == g {
				all = append(all, g)
			}
		}
	}
	slices.SortFunc(all, func(a, b *grant) int { return cmp.Compare(a.until(), b.until()) })
	now := t.cfg.Clock.read().now
	ends, used := make([]*grant, 0, min(n, len(all))), []*grant(nil)
	for _, g := range all {
		switch {
		case len(ends) == n:
			return ends
		case t.isUsed(g, now):
			used = append(used, g)
		default:
			ends = append(ends, g)
		}
	}
	return append(ends, used[:min(n-len(ends), len(used))]...)
}

// isUsed tells whether an address is known to be in use: an answer lacked it and its connections
// keep it open, or one was active at the last listing.
func (t *Table) isUsed(g *grant, now monotonic) bool {
	return slices.ContainsFunc(g.reasons(), func(r reason) bool { return r.held != 0 }) || t.active(g, now-monotonic(connectionsEvery))
}

// endEarly ends grants before their time. It returns the first error of a set.
func (t *Table) endEarly(ends []*grant) error {
	t.evicted.Add(uint64(len(ends)))
	for _, err := range t.end(ends) {
		return err
	}
	return nil
}

// end removes grants from the kernel, remembers their reasons, and returns the errors of
// sets that refused. The caller holds mu.
func (t *Table) end(grants []*grant) map[*set]error {
	if len(grants) == 0 {
		return nil
	}
	removed := map[*set][]dataplane.Grant{}
	for _, g := range grants {
		removed[g.set] = append(removed[g.set], dataplane.Grant{Addr: g.address()})
		g.doubt()
	}
	sets := slices.SortedFunc(maps.Keys(removed), func(a, b *set) int { return cmp.Compare(b.key.Rule, a.key.Rule) }) // by kinds of writers
	ops := make([]dataplane.GrantOp, len(sets))
	for i, s := range sets {
		ops[i] = dataplane.GrantOp{Set: s.key, Remove: true, Grants: removed[s]}
	}
	t.cfg.Kernel.ApplyGrants(ops)
	failed := map[*set]error{}
	for i, s := range sets {
		if ops[i].Err != nil {
			failed[s] = ops[i].Err
		}
	}
	for _, g := range grants {
		if failed[g.set] != nil {
			continue
		}
		if !g.set.key.Rule.Lasting() {
			t.remember(g.set, g.address(), g.reasons())
		}
		g.set.mu.Lock()
		g.set.remove(g)
		g.set.mu.Unlock()
	}
	return failed
}

// doubt makes a grant uncertain that is about to be removed. The caller holds Table.mu.
func (g *grant) doubt() {
	g.set.mu.Lock()
	defer g.set.mu.Unlock()
	g.set.markUncertain(g.address())
}
