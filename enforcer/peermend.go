package enforcer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/namegate/namegate/kernel/ipset"
)

// peersDiffer tells whether the kernel holds another number of entries of a peer set
// than it was given. before is what it held when sizes were asked for: nothing is said
// where that changed meanwhile.
func (e *Enforcer) peersDiffer(before *map[string]bounds, sizes map[string]int) bool {
	if before == nil || e.peersHold.Load() != before {
		return false
	}
	for name, b := range *before {
		if e.outside(name, b, sizes) {
			return true
		}
	}
	return false
}

// outside tells whether a set's size is not within its bounds. While two agents write,
// each holds what the other does not know.
func (e *Enforcer) outside(name string, b bounds, sizes map[string]int) bool {
	size, there := sizes[name]
	return !there || size < b.least || size > b.most && !e.predecessor.Present()
}

// deviatingPeers returns the peer sets that hold another number of members than they
// should, and those of which a glance showed other members: these are compared again
// until they are as wanted, since a repair may have to wait.
func (e *Enforcer) deviatingPeers() ([]*peerSet, error) {
	for s := range e.differing {
		if e.peers[s.key] != s || s.refused {
			delete(e.differing, s)
			continue
		}
		d, err := e.comparePeers(s)
		if err != nil {
			return nil, err
		}
		if !d.Any() {
			delete(e.differing, s)
		}
	}
	if len(e.peers) == 0 {
		return nil, nil
	}
	sizes, err := e.k.Sets.Sizes()
	if err != nil {
		return nil, err
	}
	var out []*peerSet
	for _, s := range e.peers {
		if !s.refused && (e.differing[s] || e.outside(s.name, bounds{s.size, s.size + len(s.beyond)}, sizes)) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *peerSet) int { return cmp.Compare(a.name, b.name) })
	return out, nil
}

// repairPeers repairs peer sets, and counts that as one repair.
func (e *Enforcer) repairPeers(wrong []*peerSet) error {
	if len(wrong) > 0 {
		e.repaired(fmt.Sprintf("peers %q, %d sets in all", wrong[0].key.peer.Key, len(wrong)))
	}
	return e.amendPeers(wrong)
}

// amendPeers lets peer sets hold what they were given.
func (e *Enforcer) amendPeers(wrong []*peerSet) error {
	for _, s := range wrong {
		d, err := e.comparePeers(s)
		if err != nil {
			return err
		}
		if !d.Any() {
			continue
		}
		want := s.entries(s.full)
		if err := ipset.Repair(e.k.Sets, s.header(len(want)), d, want); err != nil {
			return err
		}
	}
	return nil
}

// comparePeers compares a peer set with what it was given.
func (e *Enforcer) comparePeers(s *peerSet) (ipset.Difference, error) {
	want := s.entries(s.full)
	return ipset.Compare(e.k.Sets, s.header(len(want)), want, func(en ipset.Entry) bool { return !s.beyond[en] && !e.predecessor.Present() })
}
