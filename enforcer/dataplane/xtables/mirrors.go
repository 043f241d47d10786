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

// mirror is a set whose members are known without the kernel: of peers or of grants.
type mirror interface {
	fmt.Stringer // for administrators
	setName() string
	// freeze calls f with the members, which do not change meanwhile. It does nothing for a
	// set that no rule asks any more.
	freeze(f func(members))
}

// members are what the kernel is to hold of a set.
type members struct {
	header ipset.Set
	want   []ipset.Entry
	// bounds are how many entries the kernel may hold: of want, and those for which maybe
	// holds.
	bounds dataplane.Bounds
	maybe  func(ipset.Entry) bool
}

func (s *peerSet) setName() string { return s.name }

func (s *peerSet) String() string { return fmt.Sprintf("peers %q", s.key.peer.Key) }

func (s *peerSet) bounds() dataplane.Bounds {
	return dataplane.Bounds{Min: s.size, Max: s.size + len(s.stale)}
}

func (s *peerSet) freeze(f func(members)) {
	if s.refused || s.released {
		return
	}
	want := s.entries(s.full)
	f(members{s.header(len(want)), want, s.bounds(), func(en ipset.Entry) bool { return s.stale[en] }})
}

// grantMirror is a set of the kernel that has grants. sets and bounds are those of when it was
// made: sets of single ports come and go.
type grantMirror struct {
	grants dataplane.Grants
	sets   []dataplane.GrantSet
	bounds dataplane.Bounds
}

// grantMirrors returns the sets of the kernel that have grants, by name.
func grantMirrors(grants dataplane.Grants) map[string]*grantMirror {
	out := map[string]*grantMirror{}
	for set, b := range grants.Bounds() {
		m := out[set.Name]
		if m == nil {
			m = &grantMirror{grants: grants}
			out[set.Name] = m
		}
		m.sets, m.bounds = append(m.sets, set), dataplane.Bounds{Min: m.bounds.Min + b.Min, Max: m.bounds.Max + b.Max}
	}
	return out
}

func (m *grantMirror) setName() string { return m.sets[0].Name }

func (m *grantMirror) String() string {
	var ports []policy.PortRange
	for _, s := range m.sets {
		ports = append(ports, s.Ports.Ranges()...)
	}
	return fmt.Sprintf("grants of pod %s on %s", m.sets[0].Pod, policy.NewPortSet(ports...))
}

func (m *grantMirror) freeze(f func(members)) {
	m.grants.Freeze(m.sets[0], func(frozen []dataplane.Frozen) {
		is, uncertain := members{header: grantHeader(frozen[0].Set)}, map[ipset.Entry]bool{}
		for _, s := range frozen {
			is.want = appendGrants(is.want, &s.Set, s.Certain)
			is.bounds.Min, is.bounds.Max = is.bounds.Min+len(s.Certain), is.bounds.Max+len(s.Certain)+len(s.Uncertain)
			for a := range s.Uncertain {
				for _, en := range appendGrants(nil, &s.Set, []dataplane.Grant{{Addr: a}}) {
					uncertain[en] = true
				}
			}
		}
		is.maybe = func(en ipset.Entry) bool { return uncertain[en] }
		f(is)
	})
}

// mirrors compares and repairs the sets of peers and of grants.
type mirrors struct {
	sets ipset.Interface
	// coexisting tells whether another agent writes too.
	coexisting func() bool
	// differing are the sets whose members deviated when they had their turn, by name.
	differing map[string]mirror
}

// outside tells whether a set's size is not within its bounds. While two agents write, the
// kernel also holds the entries of the other.
func (m *mirrors) outside(name string, b dataplane.Bounds, sizes map[string]int) bool {
	size, there := sizes[name]
	return !there || size < b.Min || size > b.Max && !m.coexisting()
}

// wrongSizes returns the sets of a wrong size. sizes may be older than the members: a set is
// asked again.
func (m *mirrors) wrongSizes(p *peers, grants dataplane.Grants, sizes map[string]int) (wrong []mirror, err error) {
	for _, s := range p.all {
		if !s.refused && m.outside(s.name, s.bounds(), sizes) {
			wrong = append(wrong, s)
		}
	}
	for name, s := range grantMirrors(grants) {
		if m.outside(name, s.bounds, sizes) {
			wrong = append(wrong, s)
		}
	}
	wrong = slices.DeleteFunc(wrong, func(s mirror) bool {
		still := false
		s.freeze(func(is members) {
			again, e := m.sets.Sizes(s.setName())
			err = cmp.Or(err, e)
			still = m.outside(s.setName(), is.bounds, again)
		})
		return !still
	})
	return wrong, err
}

// verify returns the sets of a wrong size, and those whose members deviated at their turn
// and still do: a repair may have to wait.
func (m *mirrors) verify(p *peers, grants dataplane.Grants, sizes map[string]int) ([]mirror, error) {
	wrong, err := m.wrongSizes(p, grants, sizes)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, s := range wrong {
		found[s.setName()] = true
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
	slices.SortFunc(wrong, func(a, b mirror) int { return cmp.Compare(a.setName(), b.setName()) })
	return wrong, nil
}

// differs tells whether the members of a set deviate, and keeps the result for verify.
func (m *mirrors) differs(s mirror) (differs bool, err error) {
	s.freeze(func(is members) {
		var d ipset.Difference
		d, err = m.compare(is)
		differs = err == nil && d.Any()
	})
	if differs {
		m.differing[s.setName()] = s
	} else if err == nil {
		delete(m.differing, s.setName())
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
func (m *mirrors) repair(s mirror) (deviated bool, err error) {
	s.freeze(func(is members) {
		var d ipset.Difference
		if d, err = m.compare(is); err == nil && d.Any() {
			deviated, err = true, ipset.Repair(m.sets, is.header, d, is.want)
		}
	})
	return deviated, err
}
