package enforcer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/namegate/namegate/enforcer/ipset"
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
	return !there || size < b.least || size > b.most && !e.together.Load()
}

// repairPeers lets peer sets hold again what they should: those that have another size,
// and some that are to be looked at closely.
func (e *Enforcer) repairPeers(look ...*peerSet) error {
	mended, err := e.mendPeers(look...)
	if len(mended) > 0 {
		e.repaired(fmt.Sprintf("peers %q, %d sets in all", mended[0].key.peer.Key, len(mended)))
	}
	return err
}

// mendPeers is repairPeers with the sets to be looked at closely, and returns those in
// which something was amiss.
func (e *Enforcer) mendPeers(look ...*peerSet) (mended []*peerSet, err error) {
	if len(e.peers) == 0 {
		return nil, nil
	}
	sizes, err := e.k.Sets.Sizes()
	if err != nil {
		return nil, err
	}
	for _, s := range e.peers {
		if !s.refused && e.outside(s.name, bounds{s.size, s.size + len(s.beyond)}, sizes) {
			look = append(look, s)
		}
	}
	slices.SortFunc(look, func(a, b *peerSet) int { return cmp.Compare(a.name, b.name) })
	for _, s := range slices.Compact(look) {
		changed, err := e.refillPeers(s)
		if err != nil {
			return mended, err
		}
		if changed {
			mended = append(mended, s)
		}
	}
	return mended, nil
}

// somePeers returns the peer sets whose turn it is.
func (e *Enforcer) somePeers() []*peerSet {
	if len(e.unlookedPeers) == 0 {
		e.unlookedPeers = slices.Collect(maps.Values(e.peers))
	}
	turn := min((len(e.peers)+closeLooks-1)/closeLooks, len(e.unlookedPeers))
	some := slices.Clone(e.unlookedPeers[:turn])
	e.unlookedPeers = e.unlookedPeers[turn:]
	return slices.DeleteFunc(some, func(s *peerSet) bool { return e.peers[s.key] != s || s.refused })
}

// refillPeers takes out of a set what is not its own, puts back what is missing, and
// tells whether anything was amiss.
func (e *Enforcer) refillPeers(s *peerSet) (changed bool, err error) {
	there, err := e.k.Sets.List(s.name)
	want := s.entries(s.full)
	if ipset.IsNotFound(err) {
		changed, err = true, e.k.Sets.Ensure(s.header(len(want)))
	}
	if err != nil {
		return false, err
	}
	has, wanted := map[ipset.Entry]bool{}, map[ipset.Entry]bool{}
	for _, en := range there {
		has[en.Key()] = true
	}
	var missing, strange []ipset.Entry
	for _, en := range want {
		wanted[en] = true
		if !has[en] {
			missing = append(missing, en)
		}
	}
	for en := range has {
		if !wanted[en] && !s.beyond[en] && !e.together.Load() {
			strange = append(strange, en)
		}
	}
	if err := e.k.Sets.Delete(s.name, strange...); err != nil {
		return false, err
	}
	return changed || len(strange)+len(missing) > 0, e.k.Sets.Add(s.name, missing...)
}
