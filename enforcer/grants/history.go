package grants

import (
	"net/netip"
	"slices"

	"github.com/namegate/namegate/share"
)

// remembered is of the names of ended grants: connections outlive their grants, and when a policy goes,
// so must the connections that it had allowed.
var remembered = share.Bound{Resource: "ended grants", Least: 64, Each: 8192, All: 32768}

// history is the ended grants of a pod, which its sets have.
type history struct {
	names int
	order []endedGrant // as they ended; some are forgotten
}

// endedGrant is the place of an ended grant.
type endedGrant struct {
	set  *set
	addr netip.Addr
}

// remember adds ended reasons to those of an address. Beyond the pod's share, its addresses that ended
// first are dropped. The caller holds mu.
func (t *Table) remember(s *set, a netip.Addr, ended reasons) {
	if len(ended) == 0 {
		return
	}
	s.mu.Lock()
	old := s.past[a]
	all := slices.Clone(old)
	for _, r := range ended {
		all, _ = all.add(r, never)
	}
	s.setPast(a, all)
	s.mu.Unlock()
	h := &s.of.past
	if old == nil {
		h.order = append(h.order, endedGrant{s, a})
	}
	for len(h.order) > 0 && remembered.Room(h.names, t.ended) < 0 {
		first := h.order[0]
		h.order = h.order[1:]
		first.set.mu.Lock()
		first.set.setPast(first.addr, nil)
		first.set.mu.Unlock()
	}
}

// setPast replaces the ended reasons of an address. The caller holds Table.mu and mu.
func (s *set) setPast(a netip.Addr, all reasons) {
	if s.of != nil {
		n := len(all) - len(s.past[a])
		s.of.past.names += n
		s.table.ended += n
	}
	if len(all) == 0 {
		if delete(s.past, a); len(s.past) == 0 {
			s.past = nil // a map does not shrink
		}
		return
	}
	if s.past == nil {
		s.past = map[netip.Addr]reasons{}
	}
	s.past[a] = all
}

// forget forgets the denied reasons of ended grants and returns how many addresses are left without one.
// The caller holds Table.mu and mu.
func (s *set) forget(denied func(reason) bool) (gone int) {
	for a, all := range s.past {
		kept := slices.DeleteFunc(slices.Clone(all), denied)
		if s.setPast(a, kept); len(kept) == 0 {
			gone++
		}
	}
	return gone
}

// compact drops the places of what is forgotten. The caller holds Table.mu.
func (h *history) compact() {
	h.order = slices.DeleteFunc(h.order, func(e endedGrant) bool { return e.set.past[e.addr] == nil })
}
