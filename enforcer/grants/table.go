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
	// InPlace: the kernel moves the deadline of a grant of the Namespace tier whose comment stays as it
	// is, as it does that of one of a rule.
	InPlace bool
	// Connections hands over the connections of all pods that were admitted and answered; nil:
	// the table knows of none.
	Connections func(each func(Connection)) error
	// SetMax is the most addresses of a set of the Namespace tier, 0 for no bound but the pod's.
	SetMax int
	// WriteFailed is called after each failed write of grants. It must not block.
	WriteFailed func()
	// Coexisting tells whether another agent writes too.
	Coexisting func() bool
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
	deadlines deadlines
	bounds    bounds
	held      held   // by all pods
	ended     int    // names of ended grants, of all pods
	comment   []byte // room of render

	pods atomic.Pointer[map[policy.PodRef]*podGrants]
	// epoch changes before a grant is removed from the kernel, and after it is removed
	// from the table.
	epoch    atomic.Uint64
	queue    queue
	writing  atomic.Bool // the writer runs
	writer   func()      // runWriter
	requests []*request  // of the writer
	spare    sync.Pool   // requests
	refused  atomic.Uint64
	evicted  atomic.Uint64
	share    atomic.Int64
}

// New returns an empty table.
func New(cfg Config) *Table {
	t := &Table{cfg: cfg, bounds: boundsOf(DefaultPerPod, DefaultAll)}
	t.pods.Store(&map[policy.PodRef]*podGrants{})
	t.writer = t.runWriter
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
	adds            held // by the batch that is written
	past            history
	began           uint64 // the batch of the first part of the first request in the batch turn
	turn            uint64 // the last batch with grants of the pod
	sets            atomic.Pointer[podSets]
}

// target is what the grants of a set count for: a rule, or in the Namespace tier a port set.
type target struct {
	rule  policy.RuleID
	ports policy.PortSet
}

// podSets are the sets of one pod. They are immutable.
type podSets struct {
	of      map[target][]*set
	lasting []*set // those of rules that deny or pass
	// subjects are the addresses of the pod for which rules have sets, each from its first grant on.
	subjects []netip.Addr
}

// families are the subjects of a port set: all addresses of the pod, by family.
var families = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}

// subjectsOf returns the subjects that a target has sets for.
func (p *podSets) subjectsOf(to target) []netip.Addr {
	if to.rule == "" {
		return families
	}
	return p.subjects
}

// get returns the set of a target and a subject, nil if it is not there.
func (p *podSets) get(to target, subject netip.Addr) *set {
	for _, s := range p.of[to] {
		if s.subject == subject {
			return s
		}
	}
	return nil
}

// set mirrors one set of the kernel.
type set struct {
	key       dataplane.GrantSet
	to        target
	subject   netip.Addr // an address of the pod, of a port set one of families
	prefix    string     // of comments, of a set of a rule
	deadlines bool       // comments have them
	table     *Table
	of        *podGrants // whose held counts the entries, nil while the table does not have the set
	// staged is its place in the batch that is being made, from 1; it needs Table.mu.
	staged int

	mu        sync.RWMutex
	entries   map[netip.Addr]*grant
	uncertain map[netip.Addr]bool     // nil while, as nearly always, no address is
	past      map[netip.Addr][]reason // of ended grants, nil of most sets
}

// pod returns a pod's grants, nil if it has no set.
func (t *Table) pod(ref policy.PodRef) *podGrants { return (*t.pods.Load())[ref] }

// get returns one set, nil if it is not there.
func (t *Table) get(key dataplane.GrantSet) *set {
	p := t.pod(key.Pod)
	if p == nil {
		return nil
	}
	return p.sets.Load().get(targetOf(key))
}

// targetOf returns the target and the subject of a set.
func targetOf(key dataplane.GrantSet) (target, netip.Addr) {
	subject := key.Subject
	if key.Rule == "" {
		subject = families[0]
		if key.IPv6 {
			subject = families[1]
		}
	}
	return target{key.Rule, key.Ports}, subject
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
		for _, of := range p.sets.Load().of {
			for _, s := range of {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// newSet returns an empty set.
func (t *Table) newSet(key dataplane.GrantSet) *set {
	s := &set{key: key, table: t, entries: map[netip.Addr]*grant{}}
	if s.to, s.subject = targetOf(key); key.Rule != "" {
		s.prefix = dataplane.PodID(key.Pod) + " "
	} else {
		s.deadlines = !t.cfg.InPlace
	}
	return s
}

// place adds sets to the table, or removes them with their grants, and a pod that is in no snapshot with
// its last set. The caller holds mu.
func (t *Table) place(add bool, sets ...*set) {
	pods, next := maps.Clone(*t.pods.Load()), map[*podGrants]*podSets{}
	for _, s := range sets {
		p := pods[s.key.Pod]
		if p == nil {
			p = newPod()
			pods[s.key.Pod] = p
		}
		mine := next[p]
		if mine == nil {
			is := p.sets.Load()
			mine = &podSets{of: maps.Clone(is.of), lasting: slices.Clone(is.lasting), subjects: is.subjects}
			next[p] = mine
		}
		others := func(all []*set) []*set {
			return slices.DeleteFunc(slices.Clone(all), func(o *set) bool { return o == s })
		}
		if mine.of[s.to], mine.lasting = others(mine.of[s.to]), others(mine.lasting); add {
			s.of = p
			mine.of[s.to] = append(mine.of[s.to], s)
			if s.key.Rule.Lasting() {
				mine.lasting = append(mine.lasting, s)
			}
			continue
		}
		s.empty()
		if s.of = nil; len(mine.of[s.to]) == 0 {
			delete(mine.of, s.to)
		}
	}
	for _, s := range sets {
		if p := pods[s.key.Pod]; p != nil { // else it went with the set before
			if p.sets.Store(next[p]); len(next[p].of)+len(p.views) == 0 {
				delete(pods, s.key.Pod)
			}
		}
	}
	t.pods.Store(&pods)
}

func newPod() *podGrants {
	p := &podGrants{changed: true}
	p.sets.Store(&podSets{of: map[target][]*set{}})
	return p
}

// empty removes all grants, also those that have ended. The caller holds Table.mu.
func (s *set) empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.entries {
		s.remove(a)
	}
	s.forget(func(reason) bool { return true })
}

// put stores a grant. The caller holds Table.mu and mu.
func (s *set) put(g *grant, certain bool) {
	q, old := &s.table.deadlines, s.entries[g.addr]
	if old == nil {
		s.count(1)
	} else if g.queued, g.place, old.place = old.queued, old.place, 0; g.place > 0 {
		(*q)[g.place-1] = g
	}
	s.entries[g.addr] = g
	q.enqueue(g)
	if !certain {
		s.markUncertain(g.addr)
		return
	}
	delete(s.uncertain, g.addr)
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

// remove forgets a grant. The caller holds Table.mu and mu.
func (s *set) remove(a netip.Addr) {
	if g := s.entries[a]; g != nil {
		s.count(-1)
		s.table.deadlines.remove(g)
	}
	delete(s.entries, a)
	delete(s.uncertain, a)
	if len(s.entries) == 0 {
		s.entries = map[netip.Addr]*grant{} // a map does not shrink
	}
}

// Opened returns the port sets on which an address is granted to a pod, or was, and the
// rules for which it counts to the pod; for rules that accept, or did.
func (t *Table) Opened(pod policy.PodRef, a netip.Addr) (ports []policy.PortSet, rules []policy.RuleID) {
	t.some(pod, func(s *set) bool {
		switch {
		case s.entries[a] == nil && s.past[a] == nil:
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
	return t.some(pod, func(s *set) bool { return s.key.IPv6 == ipv6 && len(s.entries)+len(s.past) > 0 })
}

// some tells whether is holds for a set of a pod. It is called under the set's lock.
func (t *Table) some(pod policy.PodRef, is func(*set) bool) bool {
	for s := range t.pod(pod).all() {
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
