package xtables

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/policy"
)

// members are what the kernel is to hold of a set.
type members struct {
	header ipset.Set
	want   []ipset.Entry
	// maybe holds for entries that the kernel may hold besides.
	maybe func(ipset.Entry) bool
}

// mirror is a set of the kernel that has grants. It keeps one of the sets of grants that share
// its name: there are thousands. bounds are those of when it was made: sets of single ports come
// and go.
type mirror struct {
	grants dataplane.Grants
	set    dataplane.GrantSet
	bounds dataplane.Bounds
}

// mirrorsOf returns the sets of the kernel that have grants, by name.
func mirrorsOf(grants dataplane.Grants) map[string]*mirror {
	out := map[string]*mirror{}
	for set, b := range grants.Bounds() {
		m := out[set.Name]
		if m == nil {
			m = &mirror{grants: grants, set: set}
			out[set.Name] = m
		}
		m.bounds = dataplane.Bounds{Min: m.bounds.Min + b.Min, Max: m.bounds.Max + b.Max}
	}
	return out
}

// String names the set for administrators.
func (m *mirror) String() string {
	var ports []policy.PortRange
	for _, s := range m.grants.Members(m.set) {
		ports = append(ports, s.Set.Ports.Ranges()...)
	}
	return fmt.Sprintf("grants of pod %s on %s", m.set.Pod, policy.NewPortSet(ports...))
}

// members calls f with the members, some of which may change meanwhile, and freeze with members
// that do not. They do nothing for a set that no rule asks any more. New grants wait for freeze.
func (m *mirror) members(f func(members)) {
	if frozen := m.grants.Members(m.set); len(frozen) > 0 {
		f(membersOf(frozen))
	}
}

func (m *mirror) freeze(f func(members)) {
	m.grants.Freeze(m.set, func(frozen []dataplane.Frozen) { f(membersOf(frozen)) })
}

// membersOf renders the sets of grants of one set of the kernel.
func membersOf(frozen []dataplane.Frozen) members {
	is, uncertain := members{header: grantHeader(frozen[0].Set)}, map[ipset.Entry]bool{}
	for _, s := range frozen {
		is.want = appendGrants(slices.Grow(is.want, len(s.Certain)), &s.Set, s.Certain)
		for a := range s.Uncertain {
			for _, en := range appendGrants(nil, &s.Set, []dataplane.Grant{{Addr: a}}) {
				uncertain[en] = true
			}
		}
	}
	is.maybe = func(en ipset.Entry) bool { return uncertain[en] }
	return is
}

// mirrors compares and repairs the sets of grants.
type mirrors struct {
	sets ipset.Interface
	// coexisting tells whether another agent writes too.
	coexisting func() bool
	// differing are the sets whose members deviated when they had their turn, by name.
	differing map[string]*mirror
}

// outside tells whether a set's size is not within its bounds. While two agents write, the
// kernel also holds the entries of the other.
func (m *mirrors) outside(name string, b dataplane.Bounds, sizes map[string]int) bool {
	size, there := sizes[name]
	return !there || size < b.Min || size > b.Max && !m.coexisting()
}

// wrongSizes returns the sets of a wrong size. sizes may be older than the members: a set is
// asked again.
func (m *mirrors) wrongSizes(grants dataplane.Grants, sizes map[string]int) (wrong []*mirror, err error) {
	for name, s := range mirrorsOf(grants) {
		if m.outside(name, s.bounds, sizes) {
			wrong = append(wrong, s)
		}
	}
	wrong = slices.DeleteFunc(wrong, func(s *mirror) bool {
		still := false
		size := func() (size map[string]int) {
			size, e := m.sets.Sizes(s.set.Name)
			err = cmp.Or(err, e)
			return size
		}
		// New grants wait for a size only where one was wrong twice: it waits for a listing.
		again := size()
		grants.FreezeBounds(s.set, func(b dataplane.Bounds) {
			still = m.outside(s.set.Name, b, again) && m.outside(s.set.Name, b, size())
		})
		return !still
	})
	return wrong, err
}

// verify returns the sets of a wrong size, and those whose members deviated at their turn
// and still do: a repair may have to wait.
func (m *mirrors) verify(grants dataplane.Grants, sizes map[string]int) ([]*mirror, error) {
	wrong, err := m.wrongSizes(grants, sizes)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, s := range wrong {
		found[s.set.Name] = true
	}
	for name, s := range maps.Clone(m.differing) {
		differs, err := m.differs(s)
		if err != nil {
			return nil, err
		}
		if differs && !found[name] {
			wrong = append(wrong, s)
		}
	}
	slices.SortFunc(wrong, func(a, b *mirror) int { return cmp.Compare(a.set.Name, b.set.Name) })
	return wrong, nil
}

// differs tells whether the members of a set deviate, and keeps the result for verify. The same
// deviation has to show twice: new grants do not wait for the listing of a set, which takes a
// millisecond for some hundred entries.
func (m *mirrors) differs(s *mirror) (differs bool, err error) {
	var d ipset.Difference
	s.members(func(is members) { d, err = m.compare(is) })
	if d.Any() {
		var again ipset.Difference
		s.members(func(is members) { again, err = m.compare(is) })
		d = d.And(again)
	}
	if differs = err == nil && d.Any(); differs {
		m.differing[s.set.Name] = s
	} else if err == nil {
		delete(m.differing, s.set.Name)
	}
	return differs, err
}

func (m *mirrors) compare(is members) (ipset.Difference, error) {
	coexisting := m.coexisting()
	d, err := ipset.Compare(m.sets, is.header, is.want, func(en ipset.Entry) bool { return !is.maybe(en) && !coexisting })
	if coexisting {
		d.Changed = nil // the other agent moves deadlines
	}
	return d, err
}

// repair removes foreign entries from a set and writes the lost ones again. It tells whether
// the set deviated.
func (m *mirrors) repair(s *mirror) (deviated bool, err error) {
	s.freeze(func(is members) {
		var d ipset.Difference
		if d, err = m.compare(is); err == nil && d.Any() {
			deviated, err = true, ipset.Repair(m.sets, is.header, d, is.want)
		}
	})
	return deviated, err
}
