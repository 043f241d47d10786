package grants

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
)

// setMax is the maximum number of addresses of one set: half of a dataplane's minimum
// capacity, so that a pod with endless queries meets this bound first.
const setMax = 32768

// ruleSetMax is that of a set of a rule, and errFull the error of one of a lasting rule that
// has as many: all pods of the node share the dataplane's capacity for the rule.
const ruleSetMax = 8192

var errFull = fmt.Errorf("the rule has %d addresses for the pod, which do not end before their time", ruleSetMax)

// evict ends the grants that end soonest where a set would grow over its bound: more of
// them than needed, so that a set at its bound is not searched for every answer.
// Connections that they admitted stay. Grants of lasting rules do not end. The caller holds
// mu.
func (t *Table) evict(st *staged) error {
	s, most := st.set, cmp.Or(t.cfg.SetMax, setMax)
	if s.key.Rule != "" {
		most = ruleSetMax
	}
	over := len(s.entries) + len(st.changes) - most
	if over <= 0 {
		return nil
	}
	for i := range st.changes {
		if s.entries[st.changes[i].addr] != nil {
			over--
		}
	}
	if over <= 0 {
		return nil
	}
	if s.key.Rule.Lasting() {
		return errFull
	}
	soonest := st.soonest(over + most/64)
	t.evicted.Add(uint64(len(soonest)))
	return t.end(map[*set][]netip.Addr{s: soonest})[s]
}

// soonest returns n of the set's addresses that end first, or all if there are fewer,
// without uncertain ones.
func (st *staged) soonest(n int) []netip.Addr {
	var all []deadline
	for a, g := range st.set.entries {
		if st.find(a) == nil {
			all = append(all, deadline{at: g.until(), addr: a})
		}
	}
	slices.SortFunc(all, func(a, b deadline) int { return cmp.Compare(a.at, b.at) })
	var out []netip.Addr
	for _, d := range all[:min(n, len(all))] {
		out = append(out, d.addr)
	}
	return out
}

// end removes grants from the kernel, remembers their reasons, and returns the errors of
// sets that refused. The caller holds mu.
func (t *Table) end(grants map[*set][]netip.Addr) map[*set]error {
	sets := slices.Collect(maps.Keys(grants))
	ops := make([]dataplane.GrantOp, len(sets))
	for i, s := range sets {
		s.markAllUncertain(grants[s])
		ops[i] = dataplane.GrantOp{Set: s.key, Remove: true, Grants: make([]dataplane.Grant, len(grants[s]))}
		for j, a := range grants[s] {
			ops[i].Grants[j].Addr = a
		}
	}
	t.cfg.Kernel.ApplyGrants(ops)
	failed := map[*set]error{}
	for i, s := range sets {
		if ops[i].Err != nil {
			failed[s] = ops[i].Err
			continue
		}
		s.mu.Lock()
		for _, a := range grants[s] {
			// An address that was revoked and granted again is due twice.
			if g := s.entries[a]; g != nil {
				if !s.key.Rule.Lasting() {
					s.past.remember(a, g.reasons)
				}
				s.remove(a)
			}
		}
		s.mu.Unlock()
	}
	return failed
}
