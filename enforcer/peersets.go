package enforcer

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
)

// setBuckets is the initial size of a small set: the kernel's default costs sixteen
// times the memory.
const setBuckets = 64

// peerMost is the most entries of a peer set: more than a cluster has pods.
const peerMost = 1 << 20

// peerSetsMost is how many sets of peers a node has. The kernel takes 65472 sets in a
// network namespace, and the time to create one grows with their number: whoever writes
// NetworkPolicies must leave room for the grants of others.
const peerSetsMost = 1 << 14

// peerKey is one set of peers: these, of a family.
type peerKey struct {
	peer   policy.Peer
	family iptables.Family
}

// peerSet mirrors one ipset of peers. It is of who holds apply.
type peerSet struct {
	key  peerKey
	name string
	// full is what is in the kernel for certain, nil before the first write.
	full *policy.PeerSet
	size int // entries of full
	// beyond may be in the kernel besides: what a snapshot before full had, and what
	// was refused. It goes when no chain needs it any more.
	beyond map[ipset.Entry]bool
	// listed: beyond is in the kernel, as it was read there.
	listed bool
	// refused: the kernel did not take the set or an entry. No chain asks it.
	refused bool
	// gone: another program destroyed it.
	gone bool
}

// header is what the set is created with: with as many buckets as entries need, since
// the kernel takes its time to make a set larger.
func (s *peerSet) header(entries int) ipset.Set {
	h := ipset.Set{Name: s.name, Type: ipset.HashIP, IPv6: s.key.family == iptables.IPv6, HashSize: setBuckets, MaxElem: peerMost}
	switch s.key.peer.Kind {
	case policy.PeerNetworks:
		h.Type = ipset.HashNet
	case policy.PeerPorts:
		h.Type = ipset.HashIPPort
	}
	for int(h.HashSize)*4 < entries && h.HashSize < peerMost/4 {
		h.HashSize *= 2
	}
	return h
}

// appendAddr, appendPort and appendNetwork write one member as entries, of the other
// family none.
func (s *peerSet) appendAddr(out []ipset.Entry, a netip.Addr) []ipset.Entry {
	if xtables.FamilyOf(a) != s.key.family {
		return out
	}
	return append(out, ipset.Entry{Addr: a})
}

func (s *peerSet) appendPort(out []ipset.Entry, p policy.PeerPort) []ipset.Entry {
	if xtables.FamilyOf(p.Addr) != s.key.family {
		return out
	}
	return append(out, ipset.Entry{Addr: p.Addr, Protocol: uint8(p.Protocol), Port: p.Port})
}

// appendNetwork writes everything as two halves: the kernel takes no whole.
func (s *peerSet) appendNetwork(out []ipset.Entry, n netip.Prefix) []ipset.Entry {
	switch {
	case xtables.FamilyOf(n.Addr()) != s.key.family:
		return out
	case n.Bits() == 0:
		upper := n.Addr().AsSlice()
		upper[0] = 0x80
		half, _ := netip.AddrFromSlice(upper)
		return append(out, ipset.Entry{Addr: n.Addr(), Bits: 1}, ipset.Entry{Addr: half, Bits: 1})
	case n.IsSingleIP():
		return append(out, ipset.Entry{Addr: n.Addr()})
	}
	return append(out, ipset.Entry{Addr: n.Addr(), Bits: uint8(n.Bits())})
}

// entries are what the kernel is to hold of a set.
func (s *peerSet) entries(of *policy.PeerSet) []ipset.Entry {
	added, _ := s.difference(nil, of)
	return added
}

// difference returns the entries that one state of the set has and another has not.
func (s *peerSet) difference(old, now *policy.PeerSet) (added, removed []ipset.Entry) {
	var none policy.PeerSet
	if old == nil {
		old = &none
	}
	if now == nil {
		now = &none
	}
	switch s.key.peer.Kind {
	case policy.PeerPods:
		return compare(old.Addrs, now.Addrs, netip.Addr.Compare, s.appendAddr)
	case policy.PeerNetworks:
		return compare(old.Networks, now.Networks, netip.Prefix.Compare, s.appendNetwork)
	case policy.PeerPorts:
		return compare(old.Ports, now.Ports, policy.PeerPort.Compare, s.appendPort)
	}
	return nil, nil
}

// compare walks through two sorted lists.
func compare[T any](old, now []T, by func(a, b T) int, put func([]ipset.Entry, T) []ipset.Entry) (added, removed []ipset.Entry) {
	for len(old) > 0 || len(now) > 0 {
		var c int
		switch {
		case len(old) == 0:
			c = 1
		case len(now) == 0:
			c = -1
		default:
			c = by(old[0], now[0])
		}
		if c < 0 {
			removed = put(removed, old[0])
		}
		if c > 0 {
			added = put(added, now[0])
		}
		if c <= 0 {
			old = old[1:]
		}
		if c >= 0 {
			now = now[1:]
		}
	}
	return added, removed
}

// newPeerSets returns the sets of what chains ask that are not mirrored yet, or are
// gone: those that are to be made, and those that an earlier agent left, by name.
func (e *Enforcer) newPeerSets(asked map[policy.Peer]bool) (fresh []*peerSet, left map[string]*peerSet) {
	left = map[string]*peerSet{}
	for peer := range asked {
		for _, f := range xtables.Families {
			key := peerKey{peer, f}
			if s := e.peers[key]; s != nil {
				if s.gone {
					fresh = append(fresh, s)
				}
				continue
			}
			s := &peerSet{key: key, name: xtables.PeerSetName(peer, f), beyond: map[ipset.Entry]bool{}}
			if e.found[s.name] {
				left[s.name] = s
			} else {
				fresh = append(fresh, s)
			}
		}
	}
	return fresh, left
}

// askedPeers are the peers of a plan that have sets.
func askedPeers(plan dataplane.Subjects) map[policy.Peer]bool {
	lists, out := map[*dataplane.RuleList]bool{}, map[policy.Peer]bool{}
	for _, p := range plan {
		if p.Peers == nil || lists[p.Peers] {
			continue
		}
		lists[p.Peers] = true
		for _, r := range p.Peers.Rules {
			if peer := r.Match.Peer; peer.Kind != policy.PeerAnywhere {
				out[peer] = true
			}
		}
	}
	return out
}

// take takes an entry in that the kernel has.
func (s *peerSet) take(head ipset.Set, entries []ipset.Entry) {
	if want := s.header(0); head.Type != want.Type || head.IPv6 != want.IPv6 {
		return
	}
	s.listed = true
	for _, entry := range entries {
		s.beyond[entry.Key()] = true
	}
}

// makePeerSets creates sets, and mirrors them and those that were read. Only what
// chains ask takes room: what they ask no more goes when they are written.
func (e *Enforcer) makePeerSets(asked map[policy.Peer]bool, fresh []*peerSet, left map[string]*peerSet) (failed error) {
	if len(fresh)+len(left) > 0 {
		e.peersHold.Store(nil)
	}
	for _, s := range left {
		delete(e.found, s.name)
		if s.listed {
			e.peers[s.key] = s
		} else {
			fresh = append(fresh, s) // it is gone, or another program's
		}
	}
	count := 0
	for key := range e.peers {
		if asked[key.peer] {
			count++
		}
	}
	for _, s := range fresh {
		if !s.gone && count >= e.peerSetsMost {
			failed = fmt.Errorf("set of the peers %q: this node has %d sets of peers, and no room for more; write fewer different peers into NetworkPolicies", s.key.peer.Key, count)
			e.refusedPeers[s.name] = true
			continue
		}
		if err := e.k.Sets.Ensure(s.header(len(s.entries(e.peerSetOf(s.key.peer))))); err != nil {
			failed = fmt.Errorf("set of the peers %q: %w", s.key.peer.Key, err)
			e.refusedPeers[s.name] = true
			continue
		}
		if !s.gone {
			count++
		}
		s.gone = false
		e.peers[s.key] = s
	}
	return failed
}

// peerSetOf is what peers are in the newest snapshot that knows them.
func (e *Enforcer) peerSetOf(p policy.Peer) *policy.PeerSet {
	if s := e.coming.PeerSet(p); s != nil {
		return s
	}
	return e.snapshot.PeerSet(p)
}

// fillPeerSets adds to the sets that chains ask what the newest snapshot has in them:
// what it has no more stays in until chains are written. All is one write.
func (e *Enforcer) fillPeerSets(asked map[policy.Peer]bool) (failed error) {
	type filling struct {
		set     *peerSet
		want    *policy.PeerSet
		added   []ipset.Entry
		removed []ipset.Entry
	}
	var fillings []filling
	var ops []ipset.Op
	for peer := range asked {
		want := e.peerSetOf(peer)
		for _, f := range xtables.Families {
			s := e.peers[peerKey{peer, f}]
			if s == nil || s.full != nil && s.full == want && !s.refused {
				continue
			}
			added, removed := s.difference(s.full, want)
			missing := added
			if s.listed {
				missing = slices.DeleteFunc(slices.Clone(added), func(en ipset.Entry) bool { return s.beyond[en] })
			}
			fillings, ops = append(fillings, filling{s, want, added, removed}), append(ops, ipset.Op{Set: s.name, Entries: missing})
		}
	}
	if len(ops) == 0 {
		return nil
	}
	e.peersHold.Store(nil)
	e.k.Sets.Apply(ops)
	for i, f := range fillings {
		if err := ops[i].Err; err != nil {
			failed = fmt.Errorf("peers %q: %w", f.set.key.peer.Key, err)
			f.set.refuse(f.added)
			f.set.gone = ipset.IsNotFound(err)
			e.refusedPeers[f.set.name] = true
			continue
		}
		f.set.filled(f.want, f.added, f.removed)
	}
	return failed
}

// refuse notes that some of what was to come may be in, beside what was: as no chain is
// to ask the set, all of it goes, and the next to come is written whole.
func (s *peerSet) refuse(added []ipset.Entry) {
	for _, en := range append(s.entries(s.full), added...) {
		s.beyond[en] = true
	}
	s.full, s.size = nil, 0
	s.refused, s.listed = true, false
}

// filled notes what is in.
func (s *peerSet) filled(want *policy.PeerSet, added, removed []ipset.Entry) {
	s.size += len(added) - len(removed)
	s.full, s.refused, s.listed = want, false, false
	for _, en := range removed {
		s.beyond[en] = true
	}
	for _, en := range added { // last: a half of everything may also be a network by itself
		delete(s.beyond, en)
	}
}

// readyPeers creates the peer sets that are not there, and fills all that chains
// ask. What the kernel refuses is an error, and no chain asks it.
func (e *Enforcer) readyPeers(asked map[policy.Peer]bool, fresh []*peerSet, left map[string]*peerSet) error {
	clear(e.refusedPeers)
	made := e.makePeerSets(asked, fresh, left)
	filled := e.fillPeerSets(asked)
	e.tellPeers()
	if made != nil {
		return made
	}
	return filled
}

// destroyPeers destroys the sets that no chain of a plan asks, which must have been
// written. What another's rule asks is left to Commit.
func (e *Enforcer) destroyPeers(plan dataplane.Subjects) {
	asked := askedPeers(plan)
	for key, s := range e.peers {
		if asked[key.peer] {
			continue
		}
		e.peersHold.Store(nil)
		delete(e.peers, key)
		if err := e.k.Sets.Destroy(s.name); err != nil && !ipset.IsNotFound(err) {
			e.found[s.name] = true
		}
	}
	e.tellPeers()
}

// dropPeers takes out of the peer sets what the snapshot in force has no more, and
// destroys those that no chain asks; it notes whose connections that is about.
func (e *Enforcer) dropPeers(plan dataplane.Subjects) error {
	e.destroyPeers(plan)
	var ops []ipset.Op
	var sets []*peerSet
	for _, s := range e.peers {
		if len(s.beyond) == 0 {
			continue
		}
		op := ipset.Op{Set: s.name, Delete: true}
		if !s.gone {
			op.Entries = slices.Collect(maps.Keys(s.beyond))
		}
		ops, sets = append(ops, op), append(sets, s)
	}
	if len(ops) == 0 {
		return nil
	}
	e.recheckLost(plan, sets)
	if err := e.flows.Owe(); err != nil {
		return err
	}
	e.peersHold.Store(nil)
	e.k.Sets.Apply(ops)
	var failed error
	for i, s := range sets {
		if failed = ops[i].Err; failed != nil {
			break
		}
		clear(s.beyond)
		s.listed = false
	}
	e.tellPeers()
	return failed
}

// tellPeers says what the kernel holds, for who does not hold apply, if that changed.
func (e *Enforcer) tellPeers() {
	if e.peersHold.Load() != nil {
		return
	}
	hold := make(map[string]bounds, len(e.peers))
	for _, s := range e.peers {
		hold[s.name] = bounds{s.size, s.size + len(s.beyond)}
		if s.refused {
			hold[s.name] = bounds{0, peerMost}
		}
	}
	e.peersHold.Store(&hold)
}

// bounds are how many entries the kernel must hold of a set and may hold.
type bounds struct{ least, most int }
