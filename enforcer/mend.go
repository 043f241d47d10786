package enforcer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/ipset"
)

// The kernel tells nobody when a program flushes a set, destroys it or takes an entry
// out. So how many entries there are is asked for again and again: often of the sets
// that are always there, without which all selected pods are cut off, and of those of
// pods as often as their number allows.

// glanceShare is how much longer than a look at all sets the pause after it is: one
// takes 20 ms of a node with 10,000 sets, and less than a millisecond of most.
const glanceShare = 40

// setGlance paces looks at the sizes of all sets.
type setGlance struct{ next time.Time }

// shows tells whether a look is due and shows that entries are missing, or are there
// that should not be.
func (g *setGlance) shows(e *Enforcer) bool {
	began := time.Now()
	if began.Before(g.next) {
		return false
	}
	peers := e.peersHold.Load()
	wrong, sizes, err := e.wrongSets(peers != nil && len(*peers) > 0)
	took := time.Since(began)
	g.next = began.Add(min(glanceShare*took, checkEvery))
	return err == nil && (len(wrong) > 0 || e.peersDiffer(peers, sizes))
}

// changedStatic returns the names of the sets that are always there and hold another
// number of entries than was written.
func (e *Enforcer) changedStatic() ([]string, error) {
	if len(e.holds) == 0 {
		return nil, nil
	}
	sizes, err := e.k.Sets.Sizes(slices.Collect(maps.Keys(e.holds))...)
	if err != nil {
		return nil, err
	}
	var changed []string
	for name, want := range e.holds {
		if size, there := sizes[name]; !there || size != want {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return changed, nil
}

// deviatingStatic returns the sets that are always there and lack a member of a plan, or
// hold one too many after all was written.
func (e *Enforcer) deviatingStatic(plan dataplane.Subjects) (out []string, err error) {
	wanted := e.staticEntries(plan)
	for _, s := range xtables.StaticSets() {
		d, err := e.compareStatic(s, wanted[s.Name])
		if err != nil {
			return out, err
		}
		if d.any() {
			out = append(out, s.Name)
		}
	}
	return out, nil
}

// repairSets lets the sets that deviate hold again what they should: first those that
// are always there.
func (e *Enforcer) repairSets(plan dataplane.Subjects, d deviating) error {
	if err := e.repairStatic(plan, d.static); err != nil {
		return err
	}
	if err := e.repairPeers(d.peers); err != nil {
		return err
	}
	return e.repairGrants(d.grants)
}

// restoreSets makes sets anew that are gone before anything asked them, which another
// program may destroy: every write fails for ever for want of them.
func (e *Enforcer) restoreSets() error {
	for _, s := range xtables.StaticSets() {
		if err := e.k.Sets.Ensure(s); ipset.IsMismatch(err) {
			err = e.k.Sets.Replace(s)
			delete(e.holds, s.Name)
			if err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
	}
	peers, err := e.deviatingPeers()
	if err != nil {
		return err
	}
	if err := e.repairPeers(peers); err != nil {
		return err
	}
	grants, err := e.deviatingGrants()
	if err != nil {
		return err
	}
	return e.repairGrants(grants)
}

// repairStatic repairs sets that are always there.
func (e *Enforcer) repairStatic(plan dataplane.Subjects, names []string) error {
	if len(names) == 0 {
		return nil
	}
	e.repaired("sets " + strings.Join(names, ", "))
	wanted := e.staticEntries(plan)
	for _, s := range xtables.StaticSets() {
		if !slices.Contains(names, s.Name) {
			continue
		}
		want := wanted[s.Name]
		d, err := e.compareSet(s, want, func(ipset.Entry) bool { return true })
		if err != nil {
			return err
		}
		delete(e.holds, s.Name)
		if err := e.mendSet(s, d, want); err != nil {
			return err
		}
		e.holds[s.Name] = len(wanted[s.Name])
	}
	return nil
}

// deviatingGrants returns the grant sets that hold another number of members than they
// should, and those of which a glance showed other members: these are compared again
// until they are as wanted, since a repair may have to wait.
func (e *Enforcer) deviatingGrants() ([]*grantSet, error) {
	wrong, _, err := e.wrongSets(false)
	if err != nil {
		return nil, err
	}
	for s := range e.differing.grants {
		d, err := e.compareGrants(s)
		switch {
		case err != nil:
			return wrong, err
		case !d.any():
			delete(e.differing.grants, s)
		case !slices.Contains(wrong, s):
			wrong = append(wrong, s)
		}
	}
	return wrong, nil
}

// repairGrants repairs grant sets.
func (e *Enforcer) repairGrants(wrong []*grantSet) error {
	var mended []*grantSet
	for _, s := range wrong {
		changed, err := e.refill(s)
		if err != nil {
			return err
		}
		if changed {
			mended = append(mended, s)
		}
	}
	if len(mended) > 0 {
		first := mended[0].key
		e.repaired(fmt.Sprintf("grants of pod %s on %s, %d sets in all", first.pod, first.ports, len(mended)))
	}
	return nil
}

// wrongSets returns the sets of which the kernel holds less than it should, or more,
// and the sizes of all, which are asked for if there are any of pods or in any case.
func (e *Enforcer) wrongSets(always bool) ([]*grantSet, map[string]int, error) {
	type counted struct {
		set         *grantSet
		least, most int
	}
	var before []counted
	for _, p := range *e.grants.pods.Load() {
		for s := range p.all() {
			least, most := s.bounds()
			before = append(before, counted{s, least, most})
		}
	}
	if len(before) == 0 && !always {
		return nil, nil, nil
	}
	sizes, err := e.k.Sets.Sizes()
	if err != nil {
		return nil, nil, err
	}
	var maybe []*grantSet
	for _, c := range before {
		// What came or went meanwhile is no reason.
		least, most := c.set.bounds()
		if e.deviates(c.set, sizes, min(least, c.least), max(most, c.most)) {
			maybe = append(maybe, c.set)
		}
	}
	if len(maybe) == 0 {
		return nil, sizes, nil
	}
	e.grants.plan.Lock()
	defer e.grants.plan.Unlock()
	wrong, err := e.confirm(maybe)
	return wrong, sizes, err
}

// confirm returns those of sets that deviate while nothing comes or goes. The caller
// holds plan.
func (e *Enforcer) confirm(maybe []*grantSet) ([]*grantSet, error) {
	var names []string
	for _, s := range maybe {
		names = append(names, s.name)
	}
	sizes, err := e.k.Sets.Sizes(names...)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(maybe, func(s *grantSet) bool {
		least, most := s.bounds()
		return e.grants.get(s.key) != s || !e.deviates(s, sizes, least, most)
	}), nil
}

// bounds returns how many entries the kernel must hold and may hold of a set.
func (s *grantSet) bounds() (least, most int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.entries) - len(s.doubt), len(s.entries)
}

// deviates tells whether the kernel holds less of a set than least or more than most.
// While two agents grant, each holds what the other does not know.
func (e *Enforcer) deviates(s *grantSet, sizes map[string]int, least, most int) bool {
	size, there := sizes[s.name]
	return !there || size < least || size > most && !e.together.Load()
}

// compareGrants compares a grant set with the grants that are certain. A set that is not
// in the table any more does not differ.
func (e *Enforcer) compareGrants(s *grantSet) (memberDifference, error) {
	e.grants.plan.Lock()
	defer e.grants.plan.Unlock()
	return e.compareLocked(s)
}

// compareLocked is compareGrants. The caller holds plan.
func (e *Enforcer) compareLocked(s *grantSet) (d memberDifference, err error) {
	if e.grants.get(s.key) != s {
		return d, nil
	}
	d, err = e.compareSet(grantSetHeader(s.name, s.key), e.certain(s), func(entry ipset.Entry) bool {
		return s.entries[entry.Addr] == nil && !e.together.Load()
	})
	if e.together.Load() {
		d.changed = nil // the other agent moves deadlines
	}
	return d, err
}

// certain are the members of a grant set that the kernel acknowledged. The caller holds
// plan.
func (e *Enforcer) certain(s *grantSet) []ipset.Entry {
	at := e.instant()
	var out []ipset.Entry
	for a, g := range s.entries {
		if !s.doubt[a] {
			out = append(out, e.entry(a, g, at))
		}
	}
	return out
}

// refill takes out of a set what is not its own, puts its grants back that are certain,
// and tells whether anything was amiss.
func (e *Enforcer) refill(s *grantSet) (changed bool, err error) {
	e.grants.plan.Lock()
	defer e.grants.plan.Unlock()
	d, err := e.compareLocked(s)
	if err != nil || !d.any() {
		return false, err
	}
	return true, e.mendSet(grantSetHeader(s.name, s.key), d, e.certain(s))
}
