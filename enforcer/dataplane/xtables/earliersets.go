package xtables

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
)

// An agent of an earlier layout has a set of the type hash:ip for each single port. Its
// grants are written to the set of all single ports before any rule asks that. Until that
// agent is gone it grants to its own sets: rules ask both, what is removed is removed from
// both, and a listing has the grants of both.

// moves are the grants of earlier sets that are written to the sets that have them now.
type moves struct {
	earlier map[string]dataplane.GrantSet
	entries map[string][]ipset.Entry
	// longest are the timeouts of what the new sets have already: an agent that followed may
	// have been killed before the earlier sets were gone.
	longest map[grantKey]time.Duration
	done    map[string]dataplane.GrantSet
}

// grantKey is one grant of one set.
type grantKey struct {
	set  dataplane.GrantSet
	addr netip.Addr
}

func newMoves(earlier map[string]dataplane.GrantSet) *moves {
	return &moves{earlier, map[string][]ipset.Entry{}, map[grantKey]time.Duration{}, map[string]dataplane.GrantSet{}}
}

// found notes what a new set has.
func (m *moves) found(set dataplane.GrantSet, part []dataplane.Grant) {
	if len(m.earlier) == 0 {
		return
	}
	for i := range part {
		m.longest[grantKey{set, part[i].Addr}] = part[i].Timeout
	}
}

// read takes in a part of an earlier set.
func (m *moves) read(head ipset.Set, entries []ipset.Entry) {
	if head.Type == ipset.HashIP && head.IPv6 == m.earlier[head.Name].IPv6 {
		m.entries[head.Name] = append(m.entries[head.Name], entries...)
	}
}

// write writes the grants of earlier sets to those of the sets that the kernel has.
func (m *moves) write(g *grantSets, there []dataplane.GrantSet, take func(dataplane.GrantSet, []dataplane.Grant)) error {
	if len(m.earlier) == 0 {
		return nil
	}
	has := map[dataplane.GrantSet]bool{}
	for _, s := range there {
		has[s] = true
	}
	for name, set := range m.earlier {
		if !has[set] {
			continue
		}
		grants := slices.DeleteFunc(grantsOf(m.entries[name]), func(is dataplane.Grant) bool {
			return m.longest[grantKey{set, is.Addr}] >= is.Timeout
		})
		if err := g.sets.Add(set.Name, appendGrants(nil, &set, grants)...); err != nil {
			return fmt.Errorf("take over the grants of pod %s on %s: %w", set.Pod, set.Ports, err)
		}
		take(set, grants)
		m.done[name] = set
	}
	return nil
}

// grantsOf reads the grants of an earlier set.
func grantsOf(entries []ipset.Entry) (out []dataplane.Grant) {
	for _, en := range entries {
		out = append(out, dataplane.Grant{Addr: en.Addr, Timeout: en.Timeout, Comment: en.Comment, Held: dataplane.Absent})
	}
	return out
}

// elsewhere reads a part of an earlier set of a set of grants.
func elsewhere(head ipset.Set, set dataplane.GrantSet, entries []ipset.Entry) []dataplane.Grant {
	if head.Type != ipset.HashIP || head.IPv6 != set.IPv6 {
		return nil
	}
	return grantsOf(entries)
}

// follow adds earlier sets.
func (g *grantSets) follow(earlier map[string]dataplane.GrantSet) {
	if len(earlier) == 0 {
		return
	}
	all := maps.Clone(*g.earlier.Load())
	maps.Copy(all, earlier)
	g.earlier.Store(&all)
}

// removeEarlier does the removals among ops in earlier sets.
func (g *grantSets) removeEarlier(ops []dataplane.GrantOp) {
	earlier := *g.earlier.Load()
	if len(earlier) == 0 {
		return
	}
	for i := range ops {
		op := &ops[i]
		name := ownSetName(op.Set.Pod, op.Set.Ports, familyOf(op.Set.IPv6))
		if _, is := earlier[name]; !is || !op.Remove {
			continue
		}
		var entries []ipset.Entry
		for _, is := range op.Grants {
			entries = append(entries, ipset.Entry{Addr: is.Addr})
		}
		if err := g.sets.Delete(name, entries...); err != nil && !ipset.IsNotFound(err) && op.Err == nil {
			op.Err = err
		}
	}
}

// askedEarlier returns the earlier sets that rules ask.
func (x *packetFilter) askedEarlier() map[string]dataplane.GrantSet {
	if earlier := *x.grants.earlier.Load(); len(earlier) > 0 && x.owner.Coexisting() {
		return earlier
	}
	return nil
}

// leaveEarlier leaves the earlier sets, which no rule asks, to DestroyStale. All their grants
// are known.
func (x *packetFilter) leaveEarlier() {
	earlier := *x.grants.earlier.Load()
	if len(earlier) == 0 {
		return
	}
	for name := range earlier {
		x.stale[name] = false
	}
	x.grants.earlier.Store(&map[string]dataplane.GrantSet{})
}
