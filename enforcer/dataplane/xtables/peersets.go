package xtables

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
)

// maxPeerEntries is the most entries of a peer set: more than a cluster has pods.
const maxPeerEntries = 1 << 20

// maxPeerSets is the maximum number of a node's peer sets. The kernel takes 65472 sets
// in a network namespace, and the time to create one grows with their number: authors of
// NetworkPolicies must leave room for the grants of others.
const maxPeerSets = 1 << 14

// setBuckets is the initial size of a set: the kernel's default costs sixteen times the
// memory.
const setBuckets = 64

// peerKey is one set of peers: these, of a family.
type peerKey struct {
	peer   policy.Peer
	family iptables.Family
}

// peerSet mirrors one ipset of peers.
type peerSet struct {
	key  peerKey
	name string
	// full is certainly in the kernel, nil before the first write.
	full *policy.PeerSet
	size int // entries of full
	// stale may still be in the kernel: members of an earlier snapshot or of a refused
	// write. They go when no rule needs them any more.
	stale map[ipset.Entry]bool
	// listed: stale is in the kernel, as it was read there.
	listed bool
	// refused: the kernel did not take the set or an entry. No rule asks it.
	refused bool
	// gone: another program destroyed it.
	gone bool
	// released: no rule asks it any more.
	released bool
}

// header is the header with which the set is created: with as many buckets as entries
// need, because the kernel takes time to enlarge a set.
func (s *peerSet) header(entries int) ipset.Set {
	h := ipset.Set{Name: s.name, Type: ipset.HashIP, IPv6: s.key.family == iptables.IPv6, HashSize: setBuckets, MaxElem: maxPeerEntries}
	switch s.key.peer.Kind {
	case policy.PeerNetworks:
		h.Type = ipset.HashNet
	case policy.PeerPorts:
		h.Type = ipset.HashIPPort
	}
	for int(h.HashSize)*4 < entries && h.HashSize < maxPeerEntries/4 {
		h.HashSize *= 2
	}
	return h
}

// peers is the peer sets that rules ask.
type peers struct {
	sets    ipset.Interface
	all     map[peerKey]*peerSet
	refused map[string]bool // names of sets that the kernel does not take now
	most    int
}

// missing returns the sets of rules that are not mirrored yet, or are gone: those to
// create, and by name those that an earlier agent left among stale.
func (p *peers) missing(asked map[policy.Peer]bool, stale map[string]bool) (fresh []*peerSet, left map[string]*peerSet) {
	left = map[string]*peerSet{}
	for peer := range asked {
		for _, f := range families {
			key := peerKey{peer, f}
			if s := p.all[key]; s != nil {
				if s.gone {
					fresh = append(fresh, s)
				}
				continue
			}
			s := &peerSet{key: key, name: PeerSetName(peer, f), stale: map[ipset.Entry]bool{}}
			if stale[s.name] {
				left[s.name] = s
			} else {
				fresh = append(fresh, s)
			}
		}
	}
	return fresh, left
}

// askedPeers are the peers of subjects that have sets.
func askedPeers(subjects dataplane.Subjects) map[policy.Peer]bool {
	lists, out := map[*dataplane.RuleList]bool{}, map[policy.Peer]bool{}
	for _, s := range subjects {
		if s.Peers == nil || lists[s.Peers] {
			continue
		}
		lists[s.Peers] = true
		for _, r := range s.Peers.Rules {
			if peer := r.Match.Peer; peer.Kind != policy.PeerAnywhere {
				out[peer] = true
			}
		}
	}
	return out
}

// take takes entries in that the kernel has.
func (s *peerSet) take(head ipset.Set, entries []ipset.Entry) {
	if want := s.header(0); head.Type != want.Type || head.IPv6 != want.IPv6 {
		return
	}
	s.listed = true
	for _, entry := range entries {
		s.stale[entry.Key()] = true
	}
}

// stage creates the peer sets that are not there, and fills all that rules ask. What the
// kernel refuses is an error, and no rule asks it.
func (p *peers) stage(st dataplane.State, asked map[policy.Peer]bool, fresh []*peerSet, left map[string]*peerSet) error {
	clear(p.refused)
	made := p.create(st, asked, fresh, left)
	return cmp.Or(made, p.fill(st, asked))
}

// create creates sets, and mirrors them and those that were read. Only the sets of rules
// count against the bound: the others are destroyed when the rules are written.
func (p *peers) create(st dataplane.State, asked map[policy.Peer]bool, fresh []*peerSet, left map[string]*peerSet) (failed error) {
	for _, s := range left {
		if s.listed {
			p.all[s.key] = s
		} else {
			fresh = append(fresh, s) // it is gone, or another program's
		}
	}
	count := 0
	for key := range p.all {
		if asked[key.peer] {
			count++
		}
	}
	for _, s := range fresh {
		if !s.gone && count >= p.most {
			failed = fmt.Errorf("set of the peers %q: this node has %d sets of peers, and no room for more; write fewer different peers into NetworkPolicies", s.key.peer.Key, count)
			p.refused[s.name] = true
			continue
		}
		if err := p.sets.Ensure(s.header(len(s.entries(st.Members(s.key.peer))))); err != nil {
			failed = fmt.Errorf("set of the peers %q: %w", s.key.peer.Key, err)
			p.refused[s.name] = true
			continue
		}
		if !s.gone {
			count++
		}
		s.gone = false
		p.all[s.key] = s
	}
	return failed
}

// fill adds to the sets that rules ask their newest members: earlier ones stay in until
// rules are written. All is one write.
func (p *peers) fill(st dataplane.State, asked map[policy.Peer]bool) (failed error) {
	type filling struct {
		set     *peerSet
		want    *policy.PeerSet
		added   []ipset.Entry
		removed []ipset.Entry
	}
	var fillings []filling
	var ops []ipset.Op
	for peer := range asked {
		want := st.Members(peer)
		for _, f := range families {
			s := p.all[peerKey{peer, f}]
			if s == nil || s.full != nil && s.full == want && !s.refused {
				continue
			}
			added, removed := s.difference(s.full, want)
			missing := added
			if s.listed {
				missing = slices.DeleteFunc(slices.Clone(added), func(en ipset.Entry) bool { return s.stale[en] })
			}
			fillings, ops = append(fillings, filling{s, want, added, removed}), append(ops, ipset.Op{Set: s.name, Entries: missing})
		}
	}
	if len(ops) == 0 {
		return nil
	}
	p.sets.Apply(ops)
	for i, f := range fillings {
		if err := ops[i].Err; err != nil {
			failed = fmt.Errorf("peers %q: %w", f.set.key.peer.Key, err)
			f.set.refuse(f.added)
			f.set.gone = ipset.IsNotFound(err)
			p.refused[f.set.name] = true
			continue
		}
		f.set.filled(f.want, f.added, f.removed)
	}
	return failed
}

// refuse notes that some of the new entries may be in, beside the earlier ones: as no rule
// is to ask the set, all of it goes, and the next members are written whole.
func (s *peerSet) refuse(added []ipset.Entry) {
	for _, en := range append(s.entries(s.full), added...) {
		s.stale[en] = true
	}
	s.full, s.size = nil, 0
	s.refused, s.listed = true, false
}

// filled notes the set's content.
func (s *peerSet) filled(want *policy.PeerSet, added, removed []ipset.Entry) {
	s.size += len(added) - len(removed)
	s.full, s.refused, s.listed = want, false, false
	for _, en := range removed {
		s.stale[en] = true
	}
	for _, en := range added { // last: a half of everything may also be a network by itself
		delete(s.stale, en)
	}
}

// release gives up the sets that no rule of subjects uses, which must have been written,
// and returns the names of those that cannot be destroyed yet.
func (p *peers) release(subjects dataplane.Subjects) (busy []string) {
	asked := askedPeers(subjects)
	for key, s := range p.all {
		if asked[key.peer] {
			continue
		}
		s.released = true
		delete(p.all, key)
		if err := p.sets.Destroy(s.name); err != nil && !ipset.IsNotFound(err) {
			busy = append(busy, s.name)
		}
	}
	return busy
}

// surplus are the sets that hold stale entries.
func (p *peers) surplus() (out []*peerSet) {
	for _, s := range p.all {
		if len(s.stale) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// trim takes the stale entries out of sets.
func (p *peers) trim(sets []*peerSet) (failed error) {
	if len(sets) == 0 {
		return nil
	}
	var ops []ipset.Op
	for _, s := range sets {
		op := ipset.Op{Set: s.name, Delete: true}
		if !s.gone {
			op.Entries = slices.Collect(maps.Keys(s.stale))
		}
		ops = append(ops, op)
	}
	p.sets.Apply(ops)
	for i, s := range sets {
		if failed = ops[i].Err; failed != nil {
			break
		}
		clear(s.stale)
		s.listed = false
	}
	return failed
}
