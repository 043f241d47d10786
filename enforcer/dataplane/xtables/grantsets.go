package xtables

import (
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
)

// grantSets is the sets of grants, one for each pod, port set and family. Package grants
// knows their members.
type grantSets struct {
	sets ipset.Interface
	// ops and entries are the room of apply, which has one call under way at a time.
	ops     []ipset.Op
	entries []ipset.Entry
}

// entriesKept bounds the room for entries that apply keeps.
const entriesKept = 4096

// A comment of a grant fits into that of an entry.
const _ = uint(ipset.CommentLengthMax - dataplane.CommentMax)

func (x *packetFilter) ApplyGrants(ops []dataplane.GrantOp) { x.grants.apply(ops) }

func (g *grantSets) apply(ops []dataplane.GrantOp) {
	count := 0
	for i := range ops {
		count += len(ops[i].Grants)
	}
	g.ops, g.entries = slices.Grow(g.ops, len(ops)), slices.Grow(g.entries, count)
	for i := range ops {
		begin := len(g.entries)
		g.entries = appendGrants(g.entries, ops[i].Grants)
		g.ops = append(g.ops, ipset.Op{Set: ops[i].Set.Name, Delete: ops[i].Remove, Entries: g.entries[begin:]})
	}
	g.sets.Apply(g.ops)
	for i := range ops {
		if ops[i].Err = g.ops[i].Err; ipset.IsNotFound(ops[i].Err) {
			ops[i].Err = dataplane.NoSet{Err: ops[i].Err}
		}
	}
	clear(g.ops)
	clear(g.entries)
	if g.ops, g.entries = g.ops[:0], g.entries[:0]; cap(g.entries) > entriesKept {
		g.entries = nil
	}
}

// appendGrants renders grants as entries.
func appendGrants(out []ipset.Entry, grants []dataplane.Grant) []ipset.Entry {
	for i := range grants {
		a := &grants[i]
		out = append(out, ipset.Entry{Addr: a.Addr, Timeout: min(a.Timeout, ipset.TimeoutMax), Comment: a.Comment})
	}
	return out
}

// grantReader hands over the members of grant sets, by name, from a listing. A set of
// another program is left alone.
func grantReader(sets map[string]dataplane.GrantSet, each func(dataplane.GrantSet, []dataplane.Grant)) func(ipset.Set, []ipset.Entry) {
	var part []dataplane.Grant
	return func(head ipset.Set, entries []ipset.Entry) {
		set, wanted := sets[head.Name]
		if want := grantHeader(set); !wanted || head.Type != want.Type || head.IPv6 != want.IPv6 {
			return
		}
		part = part[:0]
		for _, en := range entries {
			part = append(part, dataplane.Grant{Addr: en.Addr, Timeout: en.Timeout, Comment: en.Comment})
		}
		each(set, part)
	}
}

func (x *packetFilter) ListGrants(sets []dataplane.GrantSet, each func(dataplane.GrantSet, []dataplane.Grant)) error {
	byName := map[string]dataplane.GrantSet{}
	for _, s := range sets {
		byName[s.Name] = s
	}
	return x.cfg.Sets.ListAll(grantReader(byName, each))
}

// ReleaseGrants leaves the sets to DestroyStale.
func (x *packetFilter) ReleaseGrants(sets []dataplane.GrantSet) {
	for _, s := range sets {
		x.stale[s.Name] = true
	}
}

// grantHeader is the header with which a set is created.
func grantHeader(s dataplane.GrantSet) ipset.Set {
	return ipset.Set{Name: s.Name, Type: ipset.HashIP, IPv6: s.IPv6, Timeout: true, Comment: true, HashSize: setBuckets}
}

// missingGrants returns the sets that a state's rules use and its grants do not have:
// those to create, and by name those in the kernel already.
func missingGrants(st dataplane.State, stale map[string]bool) (fresh []dataplane.GrantSet, left map[string]dataplane.GrantSet) {
	left = map[string]dataplane.GrantSet{}
	for ref, s := range st.Subjects {
		for _, ports := range s.Grants {
			for _, v6 := range []bool{false, true} {
				set := dataplane.GrantSet{Pod: ref, Ports: ports, IPv6: v6}
				if st.Grants.Holds(set) {
					continue
				}
				if set.Name = GrantSetName(ref, ports, familyOf(v6)); stale[set.Name] {
					left[set.Name] = set
				} else {
					fresh = append(fresh, set)
				}
			}
		}
	}
	return fresh, left
}

// create creates sets and returns those that the kernel has now. refused is called for
// each of the others.
func (g *grantSets) create(sets []dataplane.GrantSet, refused func(dataplane.GrantSet, error)) (made []dataplane.GrantSet) {
	for _, s := range sets {
		if err := g.sets.Ensure(grantHeader(s)); err != nil {
			refused(s, err)
			continue
		}
		made = append(made, s)
	}
	return made
}
