package enforcer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/enforcer/grants"
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
	wrong, sizes, err := e.grants.WrongSizes(peers != nil && len(*peers) > 0)
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
		if d.Any() {
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
	wrong, err := e.grants.Deviating()
	if err != nil {
		return err
	}
	return e.repairGrants(wrong)
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
		d, err := ipset.Compare(e.k.Sets, s, want, func(ipset.Entry) bool { return true })
		if err != nil {
			return err
		}
		delete(e.holds, s.Name)
		if err := ipset.Repair(e.k.Sets, s, d, want); err != nil {
			return err
		}
		e.holds[s.Name] = len(wanted[s.Name])
	}
	return nil
}

// repairGrants repairs grant sets, and counts that as one repair.
func (e *Enforcer) repairGrants(wrong []*grants.Set) error {
	var repaired []grants.Key
	for _, s := range wrong {
		deviated, err := e.grants.Repair(s)
		if err != nil {
			return err
		}
		if deviated {
			repaired = append(repaired, s.Key())
		}
	}
	if len(repaired) > 0 {
		e.repaired(fmt.Sprintf("grants of pod %s on %s, %d sets in all", repaired[0].Pod, repaired[0].Ports, len(repaired)))
	}
	return nil
}
