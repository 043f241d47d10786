package grants

import (
	"net/netip"
	"slices"
)

// historyMax bounds how many addresses of ended grants a set remembers, historyPerPod the sets of a
// pod together, each of which has a part of at least historyLeast.
const (
	historyMax    = 1024
	historyPerPod = 8192
	historyLeast  = 16
)

// history is the reasons of ended grants: connections outlive their grants, and when a
// policy goes, so must the connections that it had allowed.
type history struct {
	reasons map[netip.Addr][]reason
	order   []netip.Addr
}

// remember adds ended reasons to those of the address. Beyond the maximum number of
// addresses, the one that ended first is dropped. The caller holds Table.mu and mu.
func (s *set) remember(a netip.Addr, rs []reason) {
	h, most := &s.past, historyMax
	if s.of != nil {
		sets := s.of.sets.Load()
		most = min(historyMax, max(historyLeast, historyPerPod/max(2*len(sets.byPorts)+len(sets.rules), 1)))
	}
	old, there := h.reasons[a]
	if !there {
		h.order = append(h.order, a)
	}
	if h.reasons == nil { // as of most sets
		h.reasons = map[netip.Addr][]reason{}
	}
	g := grant{reasons: slices.Clone(old)}
	for _, r := range rs {
		g.add(r, never)
	}
	h.reasons[a] = g.reasons
	for len(h.order) > most {
		delete(h.reasons, h.order[0])
		h.order = h.order[1:]
	}
}

// prune forgets the denied reasons and returns how many addresses are left without one.
func (h *history) prune(denied func(reason) bool) int {
	gone := 0
	for a, rs := range h.reasons {
		if kept := slices.DeleteFunc(slices.Clone(rs), denied); len(kept) > 0 {
			h.reasons[a] = kept
			continue
		}
		delete(h.reasons, a)
		gone++
	}
	h.order = slices.DeleteFunc(h.order, func(a netip.Addr) bool { return h.reasons[a] == nil })
	return gone
}
