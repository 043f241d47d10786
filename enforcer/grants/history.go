package grants

import (
	"net/netip"
	"slices"
)

// historyMax bounds how many addresses of ended grants a set remembers.
const historyMax = 1024

// history is the reasons of ended grants: connections outlive their grants, and when a
// policy goes, so must the connections that it had allowed.
type history struct {
	reasons map[netip.Addr][]reason
	order   []netip.Addr
}

// remember adds ended reasons to those of the address. Beyond the maximum number of
// addresses, the one that ended first is dropped.
func (h *history) remember(a netip.Addr, rs []reason) {
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
	for len(h.order) > historyMax {
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
