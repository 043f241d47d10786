package xtables

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
)

// members are what the kernel is to hold of a set.
type members struct {
	header ipset.Set
	want   []ipset.Entry
	// maybe holds for entries that the kernel may hold besides.
	maybe func(ipset.Entry) bool
}

// mirror is a set of the kernel, as it is wanted. One of grants keeps one of the sets of grants
// that share its name: there are thousands. bounds are those of when it was made: sets of single
// ports come and go.
type mirror struct {
	name   string
	fixed  func() members // of a static set; nil: it has grants
	grants dataplane.Grants
	set    dataplane.GrantSet
	bounds dataplane.Bounds
}

// members calls f with the members, some of which may change meanwhile. It does nothing for a set that no rule
// asks any more.
func (s *mirror) members(f func(members)) {
	if s.fixed != nil {
		f(s.fixed())
	} else if frozen := s.grants.Members(s.set); len(frozen) > 0 {
		f(membersOf(frozen))
	}
}

func (s *mirror) freezeBounds(f func(dataplane.Bounds)) {
	if s.fixed != nil {
		f(s.bounds)
		return
	}
	s.grants.FreezeBounds(s.set, f)
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

// mirrors compares and repairs the sets.
//
// The kernel sends no event when a program flushes a set, destroys it or changes its entries. So
// the numbers of entries are read periodically: often for the static sets, without which all
// isolated pods are cut off, and for the others as often as their number allows. A member that was
// exchanged for another shows in no size: members are compared in turns.
type mirrors struct {
	sets ipset.Interface
	// coexisting tells whether another agent writes too.
	coexisting func() bool
	now        func() time.Time
	// written are the sizes of the static sets that hold nothing besides the last written state.
	written map[string]int
	// differing are the names of the sets whose members deviated when they had their turn.
	differing map[string]bool
	// turns are the names of the sets that are still to be compared in this round, and next when the
	// next ones are.
	turns []string
	next  time.Time
}

func newMirrors(sets ipset.Interface, coexisting func() bool, now func() time.Time) mirrors {
	return mirrors{sets: sets, coexisting: coexisting, now: now, written: map[string]int{}, differing: map[string]bool{}}
}

// of returns all sets, by name.
func (m *mirrors) of(st dataplane.State) map[string]*mirror {
	out := mirrorsOf(st.Grants)
	for _, s := range m.static(st) {
		out[s.name] = s
	}
	return out
}

// mirrorsOf returns the sets of the kernel that have grants, by name.
func mirrorsOf(grants dataplane.Grants) map[string]*mirror {
	out := map[string]*mirror{}
	for set, b := range grants.Bounds() {
		s := out[set.Name]
		if s == nil {
			s = &mirror{name: set.Name, grants: grants, set: set}
			out[set.Name] = s
		}
		s.bounds = dataplane.Bounds{Min: s.bounds.Min + b.Min, Max: s.bounds.Max + b.Max}
	}
	return out
}

// outside tells whether a set's size is not within its bounds. While two agents write, the
// kernel also holds the grants of the other.
func (m *mirrors) outside(s *mirror, b dataplane.Bounds, sizes map[string]int) bool {
	size, there := sizes[s.name]
	return !there || size < b.Min || size > b.Max && (s.fixed != nil || !m.coexisting())
}

// wrongSizes returns those of sets that have a wrong size. names are those of sets, or none for the sizes of
// all sets of the node. A set that seems to have one is asked again: members change meanwhile.
func (m *mirrors) wrongSizes(sets map[string]*mirror, names ...string) (wrong []*mirror, err error) {
	sizes, err := m.sets.Sizes(names...)
	if err != nil {
		return nil, err
	}
	for _, s := range sets {
		if !m.outside(s, s.bounds, sizes) {
			continue
		}
		still := false
		size := func() (size map[string]int) {
			size, e := m.sets.Sizes(s.name)
			err = cmp.Or(err, e)
			return size
		}
		// New grants wait for a size only where one was wrong twice: it waits for a listing.
		again := size()
		s.freezeBounds(func(b dataplane.Bounds) {
			still = m.outside(s, b, again) && m.outside(s, b, size())
		})
		if still {
			wrong = append(wrong, s)
		}
	}
	return wrong, err
}

// verify returns those of sets that deviate: the static ones, those of a wrong size, and those whose
// members deviated at their turn and still do, as a repair may have to wait.
func (m *mirrors) verify(sets map[string]*mirror) ([]*mirror, error) {
	deviating := map[string]*mirror{}
	for name, s := range sets {
		if s.fixed != nil {
			m.differing[name] = true
		}
	}
	m.compareTurns(sets)
	wrong, err := m.wrongSizes(sets)
	if err != nil {
		return nil, err
	}
	for _, s := range wrong {
		deviating[s.name] = s
	}
	for name := range maps.Clone(m.differing) {
		s := sets[name]
		if s == nil {
			delete(m.differing, name)
			continue
		}
		differs, err := m.differs(s)
		if err != nil {
			return nil, err
		}
		if differs {
			deviating[name] = s
		}
	}
	return slices.SortedFunc(maps.Values(deviating), func(a, b *mirror) int { return cmp.Compare(a.name, b.name) }), nil
}

// changed tells whether a set has another size than it should or, of the sets whose turn it is, other
// members. Between two turns the sizes of the static sets alone are read.
func (m *mirrors) changed(st dataplane.State) bool {
	began := m.now()
	if began.Before(m.next) {
		static, names := map[string]*mirror{}, []string{}
		for _, s := range m.static(st) {
			static[s.name], names = s, append(names, s.name)
		}
		wrong, err := m.wrongSizes(static, names...)
		return err == nil && len(wrong) > 0
	}
	sets := m.of(st)
	wrong, err := m.wrongSizes(sets)
	differ := m.compareTurns(sets)
	m.next = began.Add(pause(m.now().Sub(began)))
	return differ || err == nil && len(wrong) > 0
}

// maxPause is the longest pause between comparisons.
const maxPause = 5 * time.Second

// lookShare bounds each call of changed, so that they take one part in PollShare of a core.
const lookShare = dataplane.PollEvery / dataplane.PollShare

// pause returns how long no further comparison follows one that took longer than its
// share.
func pause(took time.Duration) time.Duration {
	if took <= lookShare {
		return 0
	}
	return min(dataplane.PollShare*took, maxPause)
}

// compareTurns compares the members of sets in turns, of one at least, until its share of a core is used, and
// tells whether some deviate.
func (m *mirrors) compareTurns(sets map[string]*mirror) (deviate bool) {
	if len(m.turns) == 0 {
		m.turns = slices.Collect(maps.Keys(sets))
	}
	for began := m.now(); len(m.turns) > 0 && m.now().Sub(began) < lookShare; m.turns = m.turns[1:] {
		if s := sets[m.turns[0]]; s != nil {
			differs, err := m.differs(s)
			deviate = deviate || err == nil && differs
		}
	}
	return deviate
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
		m.differing[s.name] = true
	} else if err == nil {
		delete(m.differing, s.name)
	}
	return differs, err
}

// compare compares a set. While two agents write, the other adds grants and moves deadlines.
func (m *mirrors) compare(is members) (ipset.Difference, error) {
	coexisting := is.header.Timeout && m.coexisting()
	d, err := ipset.Compare(m.sets, is.header, is.want, func(en ipset.Entry) bool { return !is.maybe(en) && !coexisting })
	if coexisting {
		d.Changed = nil
	}
	return d, err
}

// repair removes foreign entries from a set of grants and writes the lost ones again. It tells whether the set
// deviated. New grants wait for it. It does nothing for a set that no rule asks any more.
func (m *mirrors) repair(s *mirror) (deviated bool, err error) {
	s.grants.Freeze(s.set, func(frozen []dataplane.Frozen) {
		is := membersOf(frozen)
		var d ipset.Difference
		if d, err = m.compare(is); err == nil && d.Any() {
			deviated, err = true, ipset.Repair(m.sets, is.header, d, is.want)
		}
	})
	return deviated, err
}
