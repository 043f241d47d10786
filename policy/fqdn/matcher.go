package fqdn

import (
	"iter"
	"math"
	"slices"
	"strings"
)

// flatMax bounds how many matches a result merges ahead of the question. Most
// names have a few; merging thousands into each of thousands would be quadratic.
const flatMax = 64

// walkMax bounds the steps that NewMatcher spends on one exact name to find what
// wildcards add to it. A name that takes more is walked when it is asked for, so
// that a compile is not as long as the exact names times the wildcards.
const walkMax = 512

// Matcher finds the matches of a name. Exact names are in one map, wildcards in a
// trie of labels from the right; both hold equal patterns once. It is immutable and
// safe for many readers. A nil Matcher finds nothing.
type Matcher[M any] struct {
	exact   map[Name]*result[M]
	root    node[M]
	compare func(a, b M) int
}

// node is one place in the trie: some labels from the right are read.
type node[M any] struct {
	ends     *result[M] // of the patterns that end here
	below    *result[M] // of the patterns whose "**" is left of this label
	literals map[string]*node[M]
	star     *node[M]
	globs    *globIndex[M]
}

// result is the matches of one place, and a chain of places whose matches hold
// there as well.
type result[M any] struct {
	own  []M // sorted
	up   *result[M]
	flat []M // own and the chain's, sorted; nil if that is more than flatMax
}

// NewMatcher returns the matcher of matches, which are sorted by compare. It keeps the
// slice.
func NewMatcher[M any](matches []M, pattern func(M) *Pattern, compare func(a, b M) int) *Matcher[M] {
	m := &Matcher[M]{exact: make(map[Name]*result[M], len(matches)), compare: compare}
	for i := range matches {
		m.add(pattern(matches[i]), matches[i:i+1:i+1])
	}
	m.link(&m.root, nil)
	var room [8]*result[M]
	for name, r := range m.exact {
		if lists, whole := m.walk(name, room[:0], walkMax); whole {
			r.flat = m.flatten(append(lists, r))
		}
	}
	return m
}

// add takes a slice of one match, of which most results are made.
func (m *Matcher[M]) add(p *Pattern, match []M) {
	if p.kind == kindExact {
		if r := m.exact[p.exact]; r != nil {
			r.own = append(r.own, match[0])
		} else {
			m.exact[p.exact] = &result[M]{own: match}
		}
		return
	}
	n := &m.root
	if p.kind != kindAll {
		n = n.descend(p.body())
	}
	if p.kind == kindGlob || p.kind == kindAll {
		n.ends = n.ends.with(match)
	}
	if p.kind == kindDeep || p.kind == kindAll {
		n.below = n.below.with(match)
	}
}

func (r *result[M]) with(match []M) *result[M] {
	if r == nil {
		return &result[M]{own: match}
	}
	r.own = append(r.own, match[0])
	return r
}

// descend returns the place left of n where the labels of body are read, from the
// right.
func (n *node[M]) descend(body string) *node[M] {
	for {
		dot := strings.LastIndexByte(body, '.')
		n = n.child(body[dot+1:])
		if dot < 0 {
			return n
		}
		body = body[:dot]
	}
}

// child returns the place left of n that a label of a pattern leads to, making it
// if it is new.
func (n *node[M]) child(label string) *node[M] {
	g, wild := parseGlob(label)
	switch {
	case label == "*":
		if n.star == nil {
			n.star = &node[M]{}
		}
		return n.star
	case wild:
		if n.globs == nil {
			n.globs = &globIndex[M]{}
		}
		return n.globs.add(g)
	}
	c := n.literals[label]
	if c == nil {
		if n.literals == nil {
			n.literals = map[string]*node[M]{}
		}
		c = &node[M]{}
		n.literals[label] = c
	}
	return c
}

// link links the results of n and of everything left of it to the result that holds
// there because of a "**" further right.
func (m *Matcher[M]) link(n *node[M], up *result[M]) {
	n.ends = m.under(n.ends, up)
	n.below = m.under(n.below, up)
	for _, c := range n.literals {
		m.link(c, n.below)
	}
	if n.star != nil {
		m.link(n.star, n.below)
	}
	if n.globs != nil {
		n.globs.each(func(c *node[M]) { m.link(c, n.below) })
	}
}

func (m *Matcher[M]) under(r, up *result[M]) *result[M] {
	if r == nil {
		return up
	}
	r.up = up
	r.flat = m.flatten([]*result[M]{r})
	return r
}

// Exact yields the names of the patterns without a wildcard, in no order, each with its
// own matches.
func (m *Matcher[M]) Exact() iter.Seq2[Name, []M] {
	return func(yield func(Name, []M) bool) {
		for name, r := range m.exact {
			if !yield(name, r.own) {
				return
			}
		}
	}
}

// HasExact tells whether a pattern without a wildcard is the name.
func (m *Matcher[M]) HasExact(n Name) bool { return m.exact[n] != nil }

// Match returns the matches of q, sorted; nil if there are none. It is shared and must
// not be changed.
func (m *Matcher[M]) Match(q Name) []M {
	if m == nil {
		return nil
	}
	var room [8]*result[M]
	lists := room[:0]
	if r := m.exact[q]; r != nil {
		if r.flat != nil {
			return r.flat
		}
		lists = append(lists, r)
	}
	lists, _ = m.walk(q, lists, math.MaxInt)
	switch {
	case len(lists) == 0:
		return nil
	case len(lists) == 1 && lists[0].flat != nil:
		return lists[0].flat
	}
	return m.merge(lists)
}

// walk appends the results of the trie for q. It gives up, and says so, before it
// takes more than that many steps.
func (m *Matcher[M]) walk(q Name, lists []*result[M], steps int) (found []*result[M], whole bool) {
	var starts [maxLabels]uint8
	labels := 0
	for i := 0; i < len(q); i += 1 + int(q[i]) {
		starts[labels] = uint8(i)
		labels++
	}
	var roomA, roomB [8]*node[M]
	active, next := append(roomA[:0], &m.root), roomB[:0]
	for i := labels - 1; i >= 0 && len(active) > 0; i-- {
		start := int(starts[i])
		label := string(q[start+1 : start+1+int(q[start])])
		next = next[:0]
		for _, n := range active {
			if steps -= n.steps(); steps < 0 {
				return nil, false
			}
			before := len(next)
			next = n.step(label, next)
			if len(next) == before {
				lists = addResult(lists, n.below)
			}
		}
		active, next = next, active
	}
	for _, n := range active {
		lists = addResult(lists, n.ends)
	}
	return lists, true
}

// maxLabels is more than the labels that maxWire bytes can hold.
const maxLabels = maxWire/2 + 1

// steps returns what one step from n costs at most.
func (n *node[M]) steps() int {
	if n.globs == nil {
		return 1
	}
	return 1 + len(n.globs.shapes) + n.globs.inner
}

// step appends the places that label leads to from n.
func (n *node[M]) step(label string, next []*node[M]) []*node[M] {
	if c := n.literals[label]; c != nil {
		next = append(next, c)
	}
	if n.star != nil {
		next = append(next, n.star)
	}
	if n.globs != nil {
		next = n.globs.find(label, next)
	}
	return next
}

// addResult appends r where it is new among few. Of many it may come twice, which
// merge sorts out: looking through all of them for each would be quadratic.
func addResult[M any](lists []*result[M], r *result[M]) []*result[M] {
	const few = 8
	if r == nil || len(lists) <= few && slices.Contains(lists, r) {
		return lists
	}
	return append(lists, r)
}

// flatten returns the merged matches of lists, nil if they are more than flatMax.
func (m *Matcher[M]) flatten(lists []*result[M]) []M {
	if len(lists) == 1 && lists[0].up == nil {
		return lists[0].own // nothing to merge, however long
	}
	count := 0
	for _, r := range lists {
		for ; r != nil; r = r.up {
			if count += len(r.own); count > flatMax {
				return nil
			}
		}
	}
	return m.merge(lists)
}

// merge returns the matches of lists and of their chains, each once, sorted.
func (m *Matcher[M]) merge(lists []*result[M]) []M {
	var seen resultSet[M]
	var all []M
	for _, r := range lists {
		for ; r != nil && seen.add(r); r = r.up {
			all = append(all, r.own...)
		}
	}
	slices.SortFunc(all, m.compare)
	return all
}

// resultSet is a set of results, without a map while they are few.
type resultSet[M any] struct {
	few   [16]*result[M]
	count int
	many  map[*result[M]]struct{}
}

// add tells whether r is new.
func (s *resultSet[M]) add(r *result[M]) bool {
	if s.many == nil {
		if slices.Contains(s.few[:s.count], r) {
			return false
		}
		if s.count < len(s.few) {
			s.few[s.count] = r
			s.count++
			return true
		}
		s.many = make(map[*result[M]]struct{}, 4*len(s.few))
		for _, old := range s.few {
			s.many[old] = struct{}{}
		}
	}
	before := len(s.many)
	s.many[r] = struct{}{}
	return len(s.many) > before
}
