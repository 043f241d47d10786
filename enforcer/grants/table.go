package grants

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/share"
)

// Config is the parameters of a Table.
type Config struct {
	Kernel dataplane.GrantWriter
	Clock  Clock
	// Hold is the outage hold.
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
	// RemoveKeys removes keys of grants of rules from the kernel that no grant has, and tells whether
	// there are more; nil: there are none. No grant is written meanwhile.
	RemoveKeys func(held func(subject, a netip.Addr) bool) (more bool, err error)
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
	bounds    [2]share.Bound // by kind
	held      [2]int         // by all pods, of each kind
	ended     int            // names of ended grants, of all pods
	comment   []byte         // room of render

	pods atomic.Pointer[map[policy.PodRef]*podGrants]
	// epoch changes before a grant is removed from the kernel, and after it is removed
	// from the table.
	epoch   atomic.Uint64
	queue   queue
	writer  func()    // runWriter
	spare   sync.Pool // requests
	refused atomic.Uint64
	evicted atomic.Uint64
	share   atomic.Int64
}

// New returns an empty table.
func New(cfg Config) *Table {
	t := &Table{cfg: cfg, bounds: boundsOf(DefaultPerPod, DefaultAll), batch: batch{changes: map[place]*grant{}, without: map[policy.PodRef]error{}}}
	t.pods.Store(&map[policy.PodRef]*podGrants{})
	t.writer = t.runWriter
	t.noteShare()
	return t
}

// podGrants are the sets of one pod, and the views that grants are made under. Only the holder of Table.mu
// changes them.
type podGrants struct {
	// views are the pod's in the last snapshot and in the coming one: either may
	// allow. They, addrs, which are the pod's by them, and changed need Table.mu.
	views  []*policy.View
	addrs  []netip.Addr
	latest atomic.Pointer[policy.View] // the last of views
	// changed: the grants have not been compared with views. closed: grants that other sets have are
	// not written to all that take them.
	changed, closed bool
	renews          bool   // a view has policies that renew what is in use
	held            [2]int // by kind
	adds            [2]int // by the batch that is written
	past            history

	// mu guards the fields from here on, for no longer than they are read or changed.
	mu sync.RWMutex
	of map[slot]*set
	// sets are all of them. Elements do not change: the slice grows, or is replaced.
	sets []*set
	// subjects are the addresses of the pod for which rules have sets, each from its first grant on.
	subjects []netip.Addr
}

// target is what the grants of a set count for: a rule, or in the Namespace tier a port set.
type target struct {
	rule  policy.RuleID
	ports policy.PortSet
}

// slot is the place of a set among those of its pod.
type slot struct {
	to      target
	subject netip.Addr // an address of the pod, of a port set one of families
}

// families are the subjects of a port set: all addresses of the pod, by family.
var families = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}

// subjectsOf returns the subjects that a target has sets for. The caller holds mu or Table.mu.
func (p *podGrants) subjectsOf(to target) []netip.Addr {
	if to.rule == "" {
		return families
	}
	return p.subjects
}

// set mirrors one set of the kernel.
type set struct {
	key dataplane.GrantSet
	slot
	prefix    string // of comments, of a set of a rule
	kept      string // its word in comments, "" for that of usualHold
	deadlines bool   // comments have them
	table     *Table
	of        *podGrants // whose held counts the entries, nil while the table does not have the set
	// staged is its place in the batch that is being made, from 1; it needs Table.mu.
	staged int

	mu        sync.RWMutex
	entries   map[[16]byte]*grant
	uncertain map[netip.Addr]bool    // nil while, as nearly always, no address is
	past      map[netip.Addr]reasons // of ended grants, nil of most sets
}

// pod returns a pod's grants, nil if it has no set.
func (t *Table) pod(ref policy.PodRef) *podGrants { return (*t.pods.Load())[ref] }

// get returns one set, nil if it is not there.
func (t *Table) get(key dataplane.GrantSet) *set {
	p := t.pod(key.Pod)
	if p == nil {
		return nil
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.of[slotOf(key)]
}

func slotOf(key dataplane.GrantSet) slot {
	subject := key.Subject
	if key.Rule == "" {
		subject = families[0]
		if key.IPv6 {
			subject = families[1]
		}
	}
	return slot{target{key.Rule, key.Ports}, subject}
}

// Pods yields the pods that have sets now.
func (t *Table) Pods() iter.Seq[policy.PodRef] { return maps.Keys(*t.pods.Load()) }

// all yields the sets of all pods.
func (t *Table) all() iter.Seq[*set] {
	return func(yield func(*set) bool) {
		for _, p := range *t.pods.Load() {
			for _, s := range p.all() {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// all returns a pod's sets, as they are now; none for nil.
func (p *podGrants) all() []*set {
	if p == nil {
		return nil
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.sets
}

// newSet returns an empty set.
func (t *Table) newSet(key dataplane.GrantSet) *set {
	s := &set{key: key, slot: slotOf(key), table: t, entries: map[[16]byte]*grant{}}
	if key.Rule != "" {
		s.prefix = dataplane.PodID(key.Pod) + " "
	} else {
		s.deadlines = !t.cfg.InPlace
	}
	if kept := keeps(key.Rule, t.cfg.Hold); !s.deadlines && kept != keeps(key.Rule, usualHold) {
		s.kept = keptWord + strconv.Itoa(int(kept/time.Second)) + " "
	}
	return s
}

// addPods adds pods that are not there yet. The caller holds mu.
func (t *Table) addPods(refs ...policy.PodRef) {
	pods := maps.Clone(*t.pods.Load())
	for _, ref := range refs {
		if pods[ref] == nil {
			pods[ref] = &podGrants{changed: true, of: map[slot]*set{}}
		}
	}
	t.pods.Store(&pods)
}

// place adds a set to the table. The caller holds mu.
func (t *Table) place(s *set) {
	if t.pod(s.key.Pod) == nil {
		t.addPods(s.key.Pod)
	}
	p := t.pod(s.key.Pod)
	s.of = p
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[s.slot], p.sets = s, append(p.sets, s)
}

// drop removes a set with its grants from the table. The caller holds mu.
func (t *Table) drop(s *set) {
	s.empty()
	p := s.of
	s.of = nil
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, s.slot)
	p.sets = slices.DeleteFunc(slices.Clone(p.sets), func(o *set) bool { return o == s })
}

// empty removes all grants, also those that have ended. The caller holds Table.mu.
func (s *set) empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.entries {
		s.remove(g)
	}
	s.forget(func(reason) bool { return true })
}

// put stores a grant. The caller holds Table.mu and mu.
func (s *set) put(g *grant, certain bool) {
	old := s.entries[g.addr]
	if old == nil {
		s.count(1)
	} else {
		s.table.deadlines.remove(old)
	}
	s.entries[g.addr] = g
	s.table.deadlines.enqueue(g)
	if !certain {
		s.markUncertain(g.address())
		return
	}
	delete(s.uncertain, g.address())
	if old != nil && slices.ContainsFunc(old.reasons(), func(r reason) bool { return !g.reasons().covers(r.name, r.until) }) {
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

// remove forgets a grant, or the one that replaced it. The caller holds Table.mu and mu.
func (s *set) remove(g *grant) {
	if is := s.entries[g.addr]; is != nil {
		s.count(-1)
		s.table.deadlines.remove(is)
	}
	delete(s.entries, g.addr)
	delete(s.uncertain, g.address())
	if len(s.entries) == 0 {
		s.entries = map[[16]byte]*grant{} // a map does not shrink
	}
}

// Opened returns the port sets on which an address is granted to a pod, and the rules for which it counts to the pod; with
// ended also those of grants that ended. A rule that requires the server name counts for a name alone, "" for any. It waits
// for no write.
func (t *Table) Opened(pod policy.PodRef, a netip.Addr, ended bool, name fqdn.Name) (ports []policy.PortSet, rules []policy.RuleID) {
	now := never // while another agent may move deadlines none has passed
	if name != "" && !ended && !(t.cfg.Coexisting != nil && t.cfg.Coexisting()) {
		now = t.cfg.Clock.read().now
	}
	t.some(pod, func(s *set) bool {
		var live, past reasons
		g := s.at(a)
		if g != nil {
			live = g.reasons()
		}
		if ended {
			past = s.past[a]
		}
		switch {
		case g == nil && past == nil:
		case name != "" && s.key.Rule.ServerName() && !live.holds(name, now) && past.of(name) == nil:
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
	for _, s := range t.pod(pod).all() {
		s.mu.RLock()
		found := is(s)
		s.mu.RUnlock()
		if found {
			return true
		}
	}
	return false
}

// Figures are numbers of a table.
type Figures struct {
	Grants      int    // that are open, each set's for itself
	FullestRule int    // entries of the rule of a cluster policy that has most
	Refused     uint64 // grants that failed
	Evicted     uint64 // grants that were ended to make room for others
}

// Figures returns the numbers of now. It waits for nothing.
func (t *Table) Figures() Figures {
	out := Figures{Refused: t.refused.Load(), Evicted: t.evicted.Load()}
	of := map[policy.RuleID]int{}
	for s := range t.all() {
		s.mu.RLock()
		n := len(s.entries)
		s.mu.RUnlock()
		if out.Grants += n; s.key.Rule != "" {
			of[s.key.Rule] += n
			out.FullestRule = max(out.FullestRule, of[s.key.Rule])
		}
	}
	return out
}
