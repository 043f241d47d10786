package enforcer

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/namegate/namegate/enforcer/ipset"
	"github.com/namegate/namegate/enforcer/iptables"
	"github.com/namegate/namegate/policy"
)

// grantKey is one set of grants: a pod, a port set, a family.
type grantKey struct {
	pod    policy.PodRef
	ports  policy.PortSet
	family iptables.Family
}

// grantTable is all grants by pod. Its lock is held for reading while a grant
// is made, so that a plan changes between grants and not during one.
type grantTable struct {
	mu   sync.RWMutex
	pods map[policy.PodRef]*podGrants
	due  dueQueue
}

// podGrants are the sets of one pod, and what may be granted to it.
type podGrants struct {
	// views are the pod's in the last snapshot and in the coming one: either may allow.
	views []*policy.View
	// changed: the views are not those that the sets were last held against.
	changed bool
	sets    map[grantKey]*grantSet
}

// grantSet mirrors one ipset. Its lock is held while the kernel is written, so
// that of two writers the later deadline wins.
type grantSet struct {
	name    string
	key     grantKey
	mu      sync.Mutex
	entries map[netip.Addr]*grant
	past    *history
}

// grant is one address of a set.
type grant struct {
	reasons []reason
	queued  time.Time // what its place in the queue is for; zero: it has none
}

// reason is one name that opened an address.
type reason struct {
	name  policy.Name
	until time.Time
	by    []string
}

// until is when the last reason ends.
func (g *grant) until() time.Time {
	var t time.Time
	for _, r := range g.reasons {
		if r.until.After(t) {
			t = r.until
		}
	}
	return t
}

// reasonsMax bounds how many names of one address are kept: below a pattern a pod
// may ask for names without end. With the name that ends soonest goes that its
// policy would keep the address open when all the others' are gone.
const reasonsMax = 64

// add takes a reason in, lets go of those that have ended, and tells whether the
// kernel must know: the name is new or ends later than before.
func (g *grant) add(r reason, now time.Time) bool {
	i := slices.IndexFunc(g.reasons, func(o reason) bool { return o.name == r.name })
	if i >= 0 && !r.until.After(g.reasons[i].until) {
		return false
	}
	if i >= 0 {
		g.reasons[i] = r
		return true
	}
	g.reasons = slices.DeleteFunc(g.reasons, func(o reason) bool { return o.until.Before(now) })
	g.reasons = append(g.reasons, r)
	return len(g.reasons) <= reasonsMax || g.dropSoonest().name != r.name
}

// dropSoonest takes the reason out that ends first.
func (g *grant) dropSoonest() reason {
	first := slices.MinFunc(g.reasons, func(a, b reason) int { return a.until.Compare(b.until) })
	g.reasons = slices.DeleteFunc(g.reasons, func(r reason) bool { return r.name == first.name })
	return first
}

// clone returns a grant that shares nothing that changes.
func (g *grant) clone() *grant {
	c := *g
	c.reasons = slices.Clone(g.reasons)
	return &c
}

// writersMax bounds the grants that wait for the kernel at a time.
const writersMax = 256

// Grant opens addresses for pods and returns after the kernel has acknowledged
// all of them, or with an error: the pod is not selected, no policy of it allows
// the name on those ports any more, the kernel refused, or ctx ended first. After
// an error some of the addresses may be open.
func (e *Enforcer) Grant(ctx context.Context, grants []policy.Grant) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.covered(grants) {
		return nil
	}
	select {
	case e.writers <- struct{}{}:
	case <-ctx.Done():
		e.denials.Add(1)
		return fmt.Errorf("too many grants wait for the kernel: %w", ctx.Err())
	}
	// The kernel cannot be interrupted, the caller can: the write goes on.
	grants = slices.Clone(grants)
	for i := range grants {
		grants[i].Addrs = slices.Clone(grants[i].Addrs)
		grants[i].By = slices.Clone(grants[i].By)
	}
	done := make(chan error, 1)
	go func() {
		done <- e.writeGrants(grants)
		<-e.writers
	}()
	select {
	case err := <-done:
		if err != nil {
			e.denials.Add(1)
		}
		return err
	case <-ctx.Done():
		e.denials.Add(1)
		return fmt.Errorf("the kernel did not acknowledge in time: %w", ctx.Err())
	}
}

// covered tells whether every grant is in the kernel already, as it is when an
// answer comes from a cache. It does not wait: what is being written does not
// count.
func (e *Enforcer) covered(grants []policy.Grant) bool {
	if !e.grants.mu.TryRLock() {
		return false
	}
	defer e.grants.mu.RUnlock()
	for i := range grants {
		g := &grants[i]
		p := e.grants.pods[g.Pod]
		if p == nil {
			return false
		}
		for _, a := range g.Addrs {
			s := p.sets[grantKey{g.Pod, g.Ports, versionOf(a)}]
			if s == nil || !s.has(a, g.Name, g.Deadline) {
				return false
			}
		}
	}
	return true
}

func (s *grantSet) has(a netip.Addr, name policy.Name, until time.Time) bool {
	if !s.mu.TryLock() {
		return false
	}
	defer s.mu.Unlock()
	g := s.entries[a]
	return g != nil && slices.ContainsFunc(g.reasons, func(r reason) bool { return r.name == name && !r.until.Before(until) })
}

func (e *Enforcer) writeGrants(grants []policy.Grant) error {
	e.grants.mu.RLock()
	defer e.grants.mu.RUnlock()
	for i := range grants {
		g := &grants[i]
		p := e.grants.pods[g.Pod]
		if p == nil || !p.allows(g.Name, g.Ports) {
			return fmt.Errorf("grant %s to pod %s on %s: no policy allows it any more", g.Name, g.Pod, g.Ports)
		}
		for _, f := range ipVersions {
			addrs := slices.DeleteFunc(slices.Clone(g.Addrs), func(a netip.Addr) bool { return versionOf(a) != f })
			if len(addrs) == 0 {
				continue
			}
			s := p.sets[grantKey{g.Pod, g.Ports, f}]
			if s == nil {
				return fmt.Errorf("grant %s to pod %s on %s: the pod has no such set", g.Name, g.Pod, g.Ports)
			}
			if err := e.extend(s, addrs, reason{g.Name, g.Deadline, g.By}); err != nil {
				return fmt.Errorf("grant %s to pod %s: %w", g.Name, g.Pod, err)
			}
		}
	}
	return nil
}

// allows asks the views themselves: the caller's snapshot may be older.
func (p *podGrants) allows(name policy.Name, ports policy.PortSet) bool {
	return slices.ContainsFunc(p.views, func(v *policy.View) bool { return viewAllows(v, name, ports) })
}

func viewAllows(v *policy.View, name policy.Name, ports policy.PortSet) bool {
	return v != nil && slices.ContainsFunc(v.Decide(name).Matches, func(m *policy.Match) bool { return !m.Audit && m.Ports == ports })
}

// extend opens addresses in one set for one reason.
func (e *Enforcer) extend(s *grantSet, addrs []netip.Addr, r reason) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[netip.Addr]*grant{}
	var entries []ipset.Entry
	for _, a := range addrs {
		g := &grant{}
		if old := s.entries[a]; old != nil {
			g = old.clone()
		}
		if next[a] == nil && g.add(r, e.now()) {
			next[a] = g
			entries = append(entries, e.entry(a, g))
		}
	}
	if err := e.makeRoom(s, next); err != nil {
		return err
	}
	if err := e.k.Sets.Add(s.name, entries...); err != nil {
		return err
	}
	for a, g := range next {
		e.enqueue(s, a, g)
		s.entries[a] = g
	}
	return nil
}

// setMax is how many addresses one set holds at most: half of what the kernel
// takes by default, so that a pod that resolves without end meets this first.
const setMax = 32768

// makeRoom ends the grants that end soonest where a set would grow over its
// bound: more of them than needed, so that a set at its bound is not searched
// for every answer. What they admitted goes on.
func (e *Enforcer) makeRoom(s *grantSet, next map[netip.Addr]*grant) error {
	fresh := 0
	for a := range next {
		if s.entries[a] == nil {
			fresh++
		}
	}
	over := len(s.entries) + fresh - setMax
	if over <= 0 {
		return nil
	}
	soonest := slices.SortedFunc(maps.Keys(s.entries), func(a, b netip.Addr) int {
		return s.entries[a].until().Compare(s.entries[b].until())
	})
	soonest = slices.DeleteFunc(soonest, func(a netip.Addr) bool { return next[a] != nil })
	soonest = soonest[:min(over+setMax/64, len(soonest))]
	e.evicted.Add(uint64(len(soonest)))
	return e.end(s, soonest)
}

// end takes grants out of the kernel and remembers what they had opened.
func (e *Enforcer) end(s *grantSet, addrs []netip.Addr) error {
	entries := make([]ipset.Entry, len(addrs))
	for i, a := range addrs {
		entries[i] = ipset.Entry{Addr: a}
	}
	if err := e.k.Sets.Delete(s.name, entries...); err != nil {
		return err
	}
	for _, a := range addrs {
		// An address that was taken back and granted anew is due twice.
		if g := s.entries[a]; g != nil {
			s.past.remember(a, g.reasons)
			delete(s.entries, a)
		}
	}
	return nil
}

// enqueue gives a grant a place in the queue of deadlines, if it has none or only
// a later one.
func (e *Enforcer) enqueue(s *grantSet, a netip.Addr, g *grant) {
	if until := g.until(); g.queued.IsZero() || until.Before(g.queued) {
		g.queued = until
		e.grants.due.push(due{until, s, a})
	}
}

// entry renders a grant for the kernel: it ends the outage hold after its
// deadline by itself.
func (e *Enforcer) entry(a netip.Addr, g *grant) ipset.Entry {
	left := g.until().Sub(e.now())
	return ipset.Entry{Addr: a, Timeout: min(max(left, 0)+e.cfg.Hold+time.Second, ipset.TimeoutMax), Comment: comment(g.reasons)}
}

func (t *grantTable) count() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	n := 0
	for _, p := range t.pods {
		for _, s := range p.sets {
			s.mu.Lock()
			n += len(s.entries)
			s.mu.Unlock()
		}
	}
	return n
}
