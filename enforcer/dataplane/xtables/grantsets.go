package xtables

import (
	"maps"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
)

// grantSets is the sets of grants, one for each pod, port set and family. Package grants
// knows their members.
type grantSets struct {
	sets ipset.Interface
	// coexisting tells whether another agent writes too.
	coexisting func() bool
	// differing are sets whose members deviated when they had their turn.
	differing map[dataplane.GrantSet]bool
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

// grantReader hands over the members of grant sets from a listing.
type grantReader struct {
	sets map[string]dataplane.GrantSet // by name
	each func(set dataplane.GrantSet, part []dataplane.Grant)
	// listed are the names of sets that the listing had.
	listed map[string]bool
	part   []dataplane.Grant
}

// read hands over the entries of one set. A set of another program is left alone.
func (r *grantReader) read(head ipset.Set, entries []ipset.Entry) {
	set, wanted := r.sets[head.Name]
	if want := grantHeader(set); !wanted || head.Type != want.Type || head.IPv6 != want.IPv6 {
		return
	}
	r.listed[head.Name] = true
	r.part = r.part[:0]
	for _, en := range entries {
		r.part = append(r.part, dataplane.Grant{Addr: en.Addr, Timeout: en.Timeout, Comment: en.Comment})
	}
	r.each(set, r.part)
}

func (x *packetFilter) ListGrants(sets []dataplane.GrantSet, each func(dataplane.GrantSet, []dataplane.Grant)) error {
	r := &grantReader{sets: map[string]dataplane.GrantSet{}, listed: map[string]bool{}, each: each}
	for _, s := range sets {
		r.sets[s.Name] = s
	}
	return x.cfg.Sets.ListAll(r.read)
}

// ReleaseGrants leaves the sets to DestroyStale.
func (x *packetFilter) ReleaseGrants(sets []dataplane.GrantSet) {
	for _, s := range sets {
		x.stale[s.Name] = true
	}
}

// grantHeader is what a set is created with.
func grantHeader(s dataplane.GrantSet) ipset.Set {
	return ipset.Set{Name: s.Name, Type: ipset.HashIP, IPv6: s.IPv6, Timeout: true, Comment: true, HashSize: setBuckets}
}

// missingGrants returns the sets that the rules of a state ask and its grants do not hold:
// those to be made, and by name those in the kernel already.
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

// outside returns the sets of which the kernel holds too few or too many entries. sizes
// may be older than the grants: a set is asked again.
func (g *grantSets) outside(grants dataplane.Grants, sizes map[string]int) (wrong []dataplane.GrantSet, err error) {
	for s, b := range grants.Bounds() {
		if outside(s.Name, b, sizes, g.coexisting) {
			wrong = append(wrong, s)
		}
	}
	return slices.DeleteFunc(wrong, func(s dataplane.GrantSet) bool {
		still := false
		grants.Freeze(s, func(f dataplane.Frozen) {
			again, e := g.sets.Sizes(s.Name)
			if e != nil {
				err = e
			}
			still = outside(s.Name, dataplane.Bounds{Least: len(f.Certain), Most: len(f.Certain) + len(f.Uncertain)}, again, g.coexisting)
		})
		return !still
	}), err
}

// verify returns the sets of a wrong size, and those whose members deviated at their turn
// and still do: a repair may have to wait.
func (g *grantSets) verify(grants dataplane.Grants, sizes map[string]int) ([]dataplane.GrantSet, error) {
	wrong, err := g.outside(grants, sizes)
	if err != nil {
		return nil, err
	}
	for _, s := range slices.Collect(maps.Keys(g.differing)) {
		differs, err := g.differs(grants, s)
		if err != nil {
			return wrong, err
		}
		if differs && !slices.Contains(wrong, s) {
			wrong = append(wrong, s)
		}
	}
	return wrong, nil
}

// differs tells whether the members of a set deviate, and keeps the result for verify.
func (g *grantSets) differs(grants dataplane.Grants, s dataplane.GrantSet) (differs bool, err error) {
	grants.Freeze(s, func(f dataplane.Frozen) {
		var d ipset.Difference
		d, _, err = g.compare(s, f)
		differs = d.Any()
	})
	if err != nil {
		return false, err
	}
	if differs {
		g.differing[s] = true
	} else {
		delete(g.differing, s)
	}
	return differs, nil
}

// compare compares a set with its certain grants, which it also returns as entries.
func (g *grantSets) compare(s dataplane.GrantSet, f dataplane.Frozen) (d ipset.Difference, want []ipset.Entry, err error) {
	coexisting := g.coexisting()
	want = appendGrants(nil, f.Certain)
	d, err = ipset.Compare(g.sets, grantHeader(s), want, func(en ipset.Entry) bool { return !f.Uncertain[en.Addr] && !coexisting })
	if coexisting {
		d.Changed = nil // the other agent moves deadlines
	}
	return d, want, err
}

// repair removes foreign entries from a set and writes its certain grants again. It tells
// whether the set deviated.
func (g *grantSets) repair(grants dataplane.Grants, s dataplane.GrantSet) (deviated bool, err error) {
	grants.Freeze(s, func(f dataplane.Frozen) {
		d, want, e := g.compare(s, f)
		if err = e; err == nil && d.Any() {
			deviated, err = true, ipset.Repair(g.sets, grantHeader(s), d, want)
		}
	})
	return deviated, err
}
