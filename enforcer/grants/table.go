package grants

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
)

// Config is the parameters of a Table.
type Config struct {
	Kernel dataplane.GrantWriter
	Clock  Clock
	// Hold is how much longer than its deadline the kernel keeps a grant.
	Hold time.Duration
	// InPlace: the kernel moves the deadline of a grant whose comment stays as it is, so that
	// comments have no deadlines.
	InPlace bool
	// Connections hands over the connections of all pods that were admitted and answered; nil:
	// the table knows of none.
	Connections func(each func(Connection)) error
	// SetMax is the most addresses of a set of the Namespace tier, 0 for no bound but the pod's.
	SetMax int
	// WriteFailed is called after each failed write of grants. It must not block.
	WriteFailed func()
}

// Table is all grants by pod: the mirror of the kernel's sets. It is the dataplane.Grants
// of the dataplane that it writes through.
type Table struct {
	cfg         Config
	takenBack   func(policy.GrantInfo)      // nil: not wanted
	inUse       func([]policy.NameInUse)    // nil: no grant is judged for use
	listing     sync.Mutex                  // of connections
	tracked     atomic.Pointer[connections] // nil: none were listed
	listingSoon atomic.Bool

	// mu serializes all changes; the fields up to the next blank line need it.
	mu        sync.Mutex
	batch     batch
	deadlines deadlineQueue
	bounds    bounds
	held      held // by all pods

	pods atomic.Pointer[map[policy.PodRef]*podGrants]
	// epoch changes before a grant is removed from the kernel, and after it is removed
	// from the table.
	epoch   atomic.Uint64
	queue   queue
	writing atomic.Bool // the writer runs
	spare   sync.Pool   // requests
	refused atomic.Uint64
	evicted atomic.Uint64
	share   atomic.Int64
}

// New returns an empty table.
func New(cfg Config) *Table {
	t := &Table{cfg: cfg, bounds: boundsOf(DefaultPerPod, DefaultAll)}
	t.pods.Store(&map[policy.PodRef]*podGrants{})
	t.noteShare()
	return t
}

// podGrants are the sets of one pod, and the views that grants are made under.
type podGrants struct {
	// views are the pod's in the last snapshot and in the coming one: either may
	// allow. They, and changed, need Table.mu.
	views  []*policy.View
	latest atomic.Pointer[policy.View] // the last of views
	// changed: the grants have not been compared with views. closed: grants that other sets have are
	// not written to all that take them.
	changed, closed bool
	renews          bool // a view has policies that renew what is in use
	held            held
	adds            held   // by the batch that is written
	began           uint64 // the batch of the first part of the first request in the batch turn
	turn            uint64 // the last batch with grants of the pod
	sets            atomic.Pointer[podSets]
}

// podSets are the sets of one pod. They are immutable.
type podSets struct {
	byPorts map[policy.PortSet]setPair // of the Namespace tier
	// rules are the sets with a Rule, for each of subjects. Such a set is there from its
	// first grant on.
	rules    []*set
	subjects []netip.Addr
}

// setPair is the sets of one port set, IPv4's first; a refused one is nil.
type setPair [2]*set

// of returns the index of a family in a setPair.
func of(ipv6 bool) int {
	if ipv6 {
		return 1
	}
	return 0
}

// set mirrors one set of the kernel.
type set struct {
	key   dataplane.GrantSet
	table *Table
	of    *podGrants // whose held counts the entries, nil while the table does not have the set
	// staged is its place in the batch that is being made, from 1; it needs Table.mu.
	staged int

	mu        sync.RWMutex
	entries   map[netip.Addr]*grant
	uncertain map[netip.Addr]bool // nil while, as nearly always, no address is
	past      history
}

// pod returns a pod's grants, nil if it has no set.
func (t *Table) pod(ref policy.PodRef) *podGrants { return (*t.pods.Load())[ref] }

// get returns one set, nil if it is not there.
func (t *Table) get(key dataplane.GrantSet) *set {
	p := t.pod(key.Pod)
	if p == nil {
		return nil
	}
	sets := p.sets.Load()
	if key.Rule == "" {
		return sets.byPorts[key.Ports][of(key.IPv6)]
	}
	for _, s := range sets.rules {
		if s.key == key {
			return s
		}
	}
	return nil
}

// Pods yields the pods that have sets now.
func (t *Table) Pods() iter.Seq[policy.PodRef] { return maps.Keys(*t.pods.Load()) }

// all yields the sets of all pods.
func (t *Table) all() iter.Seq[*set] {
	return func(yield func(*set) bool) {
		for _, p := range *t.pods.Load() {
			for s := range p.all() {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// all yields a pod's sets, as they were when it began; none for nil.
func (p *podGrants) all() iter.Seq[*set] {
	return func(yield func(*set) bool) {
		if p == nil {
			return
		}
		sets := p.sets.Load()
		for _, both := range sets.byPorts {
			for _, s := range both {
				if s != nil && !yield(s) {
					return
				}
			}
		}
		for _, s := range sets.rules {
			if !yield(s) {
				return
			}
		}
	}
}

// newSet returns an empty set.
func (t *Table) newSet(key dataplane.GrantSet) *set {
	return &set{key: key, table: t, entries: map[netip.Addr]*grant{}}
}

// place adds sets to the table, or removes them, and a pod with its last set. The caller
// holds mu.
func (t *Table) place(add bool, sets ...*set) {
	pods, next := maps.Clone(*t.pods.Load()), map[*podGrants]*podSets{}
	for _, s := range sets {
		p := pods[s.key.Pod]
		if p == nil {
			p = newPod()
			pods[s.key.Pod] = p
		}
		if s.count(-len(s.entries)); add {
			s.of = p
			s.count(len(s.entries))
		} else {
			s.of = nil
		}
		mine := next[p]
		if mine == nil {
			is := p.sets.Load()
			mine = &podSets{byPorts: maps.Clone(is.byPorts), rules: slices.Clone(is.rules), subjects: is.subjects}
			next[p] = mine
		}
		if s.key.Rule != "" {
			mine.rules = slices.DeleteFunc(mine.rules, func(o *set) bool { return o == s })
			if add {
				mine.rules = append(mine.rules, s)
			}
		} else {
			both := mine.byPorts[s.key.Ports]
			if both[of(s.key.IPv6)] = s; !add {
				both[of(s.key.IPv6)] = nil
			}
			if mine.byPorts[s.key.Ports] = both; both == (setPair{}) {
				delete(mine.byPorts, s.key.Ports)
			}
		}
	}
	for _, s := range sets {
		p := pods[s.key.Pod]
		if p == nil { // of the set before
			continue
		}
		if p.sets.Store(next[p]); next[p].empty() {
			delete(pods, s.key.Pod)
		}
	}
	t.pods.Store(&pods)
}

func newPod() *podGrants {
	p := &podGrants{changed: true}
	p.sets.Store(&podSets{byPorts: map[policy.PortSet]setPair{}})
	return p
}

// empty tells whether the pod has no set, and gets none by a grant.
func (p *podSets) empty() bool { return len(p.byPorts)+len(p.rules)+len(p.subjects) == 0 }

// put stores a grant. The caller holds Table.mu and mu.
func (s *set) put(a netip.Addr, g *grant, certain bool) {
	old := s.entries[a]
	if old == nil {
		s.count(1)
	}
	s.entries[a] = g
	if !certain {
		s.markUncertain(a)
		return
	}
	delete(s.uncertain, a)
	if old != nil && slices.ContainsFunc(old.reasons, func(r reason) bool { return !g.covers(r.name, r.until) }) {
		s.table.epoch.Add(1)
	}
}

// markUncertain makes an address uncertain. The caller holds Table.mu and mu.
func (s *set) markUncertain(a netip.Addr) {
	if s.uncertain == nil {
		s.uncertain = map[netip.Addr]bool{}
	}
	s.uncertain[a] = true
	s.table.epoch.Add(1)
}

// markAllUncertain makes addresses uncertain that are about to be removed. The caller holds
// Table.mu.
func (s *set) markAllUncertain(addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range addrs {
		if s.entries[a] != nil {
			s.markUncertain(a)
		}
	}
}

// remove forgets a grant. The caller holds Table.mu and mu.
func (s *set) remove(a netip.Addr) {
	if s.entries[a] != nil {
		s.count(-1)
	}
	delete(s.entries, a)
	delete(s.uncertain, a)
}

// Opened returns the port sets on which an address is granted to a pod, or was, and the
// rules for which it counts to the pod; for rules that accept, or did.
func (t *Table) Opened(pod policy.PodRef, a netip.Addr) (ports []policy.PortSet, rules []policy.RuleID) {
	t.some(pod, func(s *set) bool {
		switch {
		case s.entries[a] == nil && s.past.reasons[a] == nil:
		case s.key.Rule == "":
			ports = append(ports, s.key.Ports)
		default:
			rules = append(rules, s.key.Rule)
		}
		return false
	})
	return ports, rules
}

// OpenedAny tells whether a pod has or had any grant of a family.
func (t *Table) OpenedAny(pod policy.PodRef, ipv6 bool) bool {
	return t.some(pod, func(s *set) bool { return s.key.IPv6 == ipv6 && len(s.entries)+len(s.past.reasons) > 0 })
}

// some tells whether is holds for a set of a pod. It is called under the set's lock.
func (t *Table) some(pod policy.PodRef, is func(*set) bool) bool {
	p := t.pod(pod)
	if p == nil {
		return false
	}
	for s := range p.all() {
		s.mu.RLock()
		found := is(s)
		s.mu.RUnlock()
		if found {
			return true
		}
	}
	return false
}

// Count returns how many addresses are open, each set's for itself.
func (t *Table) Count() int {
	n := 0
	for s := range t.all() {
		s.mu.RLock()
		n += len(s.entries)
		s.mu.RUnlock()
	}
	return n
}

// Refused counts the grants that failed.
func (t *Table) Refused() uint64 { return t.refused.Load() }

// Evicted counts the grants that were ended to make room for others.
func (t *Table) Evicted() uint64 { return t.evicted.Load() }
