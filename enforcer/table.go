package enforcer

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
)

// grantTable is all grants by pod: the mirror of what the kernel holds.
//
// The rules of its locks. Who holds plan, and nobody else, changes what grant sets
// hold in the kernel, and what the table says of pods, views, sets and grants. It
// is held over the write to the kernel and the change of the table that follows:
// so changes come one after the other, of two writers the later deadline wins, and
// an answer, an expiry and a new snapshot each see what the other left. One who
// holds it waits for the kernel and for nothing else of ours. It is given back
// between batches, between pods and between parts of an expiry, so that none waits
// long. A set is made before it enters the table, and destroyed after it left.
//
// To look takes no plan: pods, and the sets of one, are copied to be changed, and
// the grants of a set are changed under its own lock besides, which is held for
// moments and never over a write. So Covered waits for nothing.
//
// An address enters the table after the kernel has acknowledged it, and is in doubt
// from before the kernel is told to take it away until it is gone from the table
// or written again. In doubt is also what the kernel refused: it may be there all
// the same. What is in doubt covers no answer, is written again by the next, and
// is taken away like the rest.
type grantTable struct {
	plan sync.Mutex
	pods atomic.Pointer[map[policy.PodRef]*podGrants]
	// epoch moves on when what was covered may not be any more: before the kernel is
	// told, and after the table says so.
	epoch atomic.Uint64
	due   dueQueue // of who holds plan
}

// podGrants are the sets of one pod, and what may be granted to it.
type podGrants struct {
	// views are the pod's in the last snapshot and in the coming one: either may
	// allow. They, and changed, are of who holds plan.
	views []*policy.View
	// changed: the views are not those that the sets were last held against.
	changed bool
	sets    atomic.Pointer[map[policy.PortSet]setPair]
}

// grantKey is one set of grants: a pod, a port set, a family.
type grantKey struct {
	pod    policy.PodRef
	ports  policy.PortSet
	family iptables.Family
}

// setPair is the sets of one port set, IPv4's first; one that the kernel refused
// is nil.
type setPair [2]*grantSet

func slot(f iptables.Family) int {
	if f == iptables.IPv6 {
		return 1
	}
	return 0
}

// grantSet mirrors one ipset.
type grantSet struct {
	name  string
	key   grantKey
	table *grantTable
	// staged is its place in the batch that is being made, from 1; of who holds plan.
	staged int

	mu      sync.RWMutex
	entries map[netip.Addr]*grant
	doubt   map[netip.Addr]bool // nil while, as nearly always, there is none
	past    *history
}

func newGrantTable() *grantTable {
	t := &grantTable{}
	t.pods.Store(&map[policy.PodRef]*podGrants{})
	return t
}

// of returns a pod's grants, nil if it has no set.
func (t *grantTable) of(ref policy.PodRef) *podGrants { return (*t.pods.Load())[ref] }

// get returns one set, nil if it is not there.
func (t *grantTable) get(key grantKey) *grantSet {
	p := t.of(key.pod)
	if p == nil {
		return nil
	}
	return (*p.sets.Load())[key.ports][slot(key.family)]
}

// include takes sets in. The caller holds plan.
func (t *grantTable) include(sets []*grantSet) {
	pods := maps.Clone(*t.pods.Load())
	for _, s := range sets {
		p := pods[s.key.pod]
		if p == nil {
			p = &podGrants{changed: true}
			p.sets.Store(&map[policy.PortSet]setPair{})
			pods[s.key.pod] = p
		}
		mine := maps.Clone(*p.sets.Load())
		both := mine[s.key.ports]
		both[slot(s.key.family)] = s
		mine[s.key.ports] = both
		p.sets.Store(&mine)
	}
	t.pods.Store(&pods)
}

// exclude lets go of a set, and of its pod with the last one. The caller holds plan.
func (t *grantTable) exclude(s *grantSet) {
	p := t.of(s.key.pod)
	mine := maps.Clone(*p.sets.Load())
	both := mine[s.key.ports]
	both[slot(s.key.family)] = nil
	if mine[s.key.ports] = both; both == (setPair{}) {
		delete(mine, s.key.ports)
	}
	p.sets.Store(&mine)
	if len(mine) == 0 {
		pods := maps.Clone(*t.pods.Load())
		delete(pods, s.key.pod)
		t.pods.Store(&pods)
	}
}

// all yields a pod's sets, as they were when it began.
func (p *podGrants) all() iter.Seq[*grantSet] {
	return func(yield func(*grantSet) bool) {
		for _, both := range *p.sets.Load() {
			for _, s := range both {
				if s != nil && !yield(s) {
					return
				}
			}
		}
	}
}

// put takes a grant in, certain or in doubt. The caller holds plan and mu.
func (s *grantSet) put(a netip.Addr, g *grant, certain bool) {
	old := s.entries[a]
	s.entries[a] = g
	if !certain {
		s.doubted(a)
		return
	}
	delete(s.doubt, a)
	if old != nil && slices.ContainsFunc(old.reasons, func(r reason) bool { return !g.covers(r.name, r.until) }) {
		s.table.epoch.Add(1)
	}
}

func (s *grantSet) doubted(a netip.Addr) {
	if s.doubt == nil {
		s.doubt = map[netip.Addr]bool{}
	}
	s.doubt[a] = true
	s.table.epoch.Add(1)
}

// remove forgets a grant. The caller holds plan and mu.
func (s *grantSet) remove(a netip.Addr) {
	delete(s.entries, a)
	delete(s.doubt, a)
}

// doubtAll puts addresses in doubt that are to be taken away. The caller holds plan.
func (s *grantSet) doubtAll(addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range addrs {
		if s.entries[a] != nil {
			s.doubted(a)
		}
	}
}

// knows tells whether an address is open or has been.
func (s *grantSet) knows(a netip.Addr) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.entries[a] != nil || s.past.reasons[a] != nil
}

// knowsAny tells whether anything is open or has been.
func (s *grantSet) knowsAny() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.entries)+len(s.past.reasons) > 0
}

func (t *grantTable) count() int {
	n := 0
	for _, p := range *t.pods.Load() {
		for s := range p.all() {
			s.mu.RLock()
			n += len(s.entries)
			s.mu.RUnlock()
		}
	}
	return n
}
