package enforcer

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/ipset"
)

// The kernel tells nobody when a program flushes a set, destroys it or takes an entry
// out. So how many entries there are is asked for again and again: often of the sets
// that are always there, without which all selected pods are cut off, and of those of
// pods as often as their number allows.

// glanceShare is how much longer than a look at all sets the pause after it is: one
// takes 20 ms of a node with 10,000 sets, and less than a millisecond of most.
const glanceShare = 40

// closeLooks is in how many checks the entries of all sets are looked at one by one:
// one that was exchanged for another shows in no size. A set that came after its turn
// waits for the next round.
const closeLooks = 12

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

// repairSets makes sets anew that are gone, and lets each hold again what it should:
// first those that are always there.
func (e *Enforcer) repairSets() error {
	if err := e.repairStatic(); err != nil {
		return err
	}
	if err := e.repairPeers(e.somePeers()...); err != nil {
		return err
	}
	return e.repairGrants(e.someSets()...)
}

// repairGrants lets grant sets hold again what they should: those that have another
// size, and some that are to be looked at closely.
func (e *Enforcer) repairGrants(look ...*grantSet) error {
	wrong, _, err := e.wrongSets(false)
	if err != nil {
		return err
	}
	var mended []*grantSet
	for _, s := range append(wrong, look...) {
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

// restoreSets makes sets anew that are gone before anything asked them, which another
// program may destroy: every write fails for ever for want of them.
func (e *Enforcer) restoreSets() error {
	for _, s := range staticSets() {
		if err := e.k.Sets.Ensure(s); err != nil {
			return err
		}
	}
	if err := e.repairPeers(); err != nil {
		return err
	}
	return e.repairGrants()
}

// someSets returns the sets whose turn it is to be looked at closely.
func (e *Enforcer) someSets() []*grantSet {
	if len(e.unlooked) == 0 {
		for _, p := range *e.grants.pods.Load() {
			e.unlooked = slices.AppendSeq(e.unlooked, p.all())
		}
		e.lookAt = (len(e.unlooked) + closeLooks - 1) / closeLooks
	}
	turn := min(e.lookAt, len(e.unlooked))
	some := e.unlooked[:turn:turn]
	e.unlooked = e.unlooked[turn:]
	return some
}

func (e *Enforcer) repairStatic() error {
	changed, err := e.changedStatic()
	if err != nil {
		return err
	}
	if len(changed) > 0 {
		e.repaired("sets " + strings.Join(changed, ", "))
	}
	for _, s := range staticSets() {
		if _, known := e.holds[s.Name]; known && !slices.Contains(changed, s.Name) {
			continue
		}
		if err := e.k.Sets.Ensure(s); err != nil {
			return err
		}
	}
	if len(changed) == 0 {
		return nil
	}
	// The chains ask for the plan in force already: what is missing cannot be too early.
	return e.writeStatic(e.inForce(), beforeChains)
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

// refill takes out of a set what is not its own, puts its grants back that are certain,
// and tells whether anything was amiss.
func (e *Enforcer) refill(s *grantSet) (changed bool, err error) {
	e.grants.plan.Lock()
	defer e.grants.plan.Unlock()
	if e.grants.get(s.key) != s {
		return false, nil
	}
	there, err := e.k.Sets.List(s.name)
	if ipset.IsNotFound(err) {
		changed, err = true, e.k.Sets.Ensure(grantSetHeader(s.name, s.key))
	}
	if err != nil {
		return false, err
	}
	has := map[netip.Addr]bool{}
	var strange []ipset.Entry
	for _, entry := range there {
		has[entry.Addr] = true
		if s.entries[entry.Addr] == nil && !e.together.Load() {
			strange = append(strange, ipset.Entry{Addr: entry.Addr})
		}
	}
	at := e.instant()
	var missing []ipset.Entry
	for a, g := range s.entries {
		if !s.doubt[a] && !has[a] {
			missing = append(missing, e.entry(a, g, at))
		}
	}
	if err := e.k.Sets.Delete(s.name, strange...); err != nil {
		return false, err
	}
	return changed || len(strange)+len(missing) > 0, e.k.Sets.Add(s.name, missing...)
}
