package policy

import (
	"math"
	"slices"
	"strings"
)

// flatMax bounds how many matches a result merges ahead of the question. Most
// names have a few; merging thousands into each of thousands would be quadratic.
const flatMax = 64

// walkMax bounds the steps that newMatcher spends on one exact name to find what
// wildcards add to it. A name that takes more is walked when it is asked for, so
// that a compile is not as long as the exact names times the wildcards.
const walkMax = 512

// matcher finds the matches of a name. Exact names are in one map, wildcards in a
// trie of labels from the right; both hold equal patterns of many policies once.
type matcher struct {
	exact map[Name]*result
	root  node
}

// node is one place in the trie: some labels from the right are read.
type node struct {
	ends     *result // of the patterns that end here
	below    *result // of the patterns whose "**" stands left of here
	literals map[string]*node
	star     *node
	globs    *globIndex
}

// result is the matches of one place, and a chain of places whose matches hold
// there as well.
type result struct {
	own  []*Match // sorted
	up   *result
	flat []*Match // own and those of the chain, sorted; nil if that is more than flatMax
}

// newMatcher returns the matcher of matches, which are sorted.
func newMatcher(matches []*Match) *matcher {
	m := &matcher{exact: make(map[Name]*result, len(matches))}
	for i := range matches {
		m.add(matches[i : i+1 : i+1])
	}
	m.root.settle(nil)
	var room [8]*result
	for name, r := range m.exact {
		if lists, whole := m.walk(name, room[:0], walkMax); whole {
			r.flat = flatten(append(lists, r))
		}
	}
	return m
}

// add takes a slice of one match, of which most results are made.
func (m *matcher) add(match []*Match) {
	p := &match[0].Pattern
	if p.kind == kindExact {
		if r := m.exact[p.exact]; r != nil {
			r.own = append(r.own, match[0])
		} else {
			m.exact[p.exact] = &result{own: match}
		}
		return
	}
	n := &m.root
	if p.kind != kindAll {
		n = n.reach(p.body())
	}
	if p.kind == kindGlob || p.kind == kindAll {
		n.ends = n.ends.with(match)
	}
	if p.kind == kindDeep || p.kind == kindAll {
		n.below = n.below.with(match)
	}
}

func (r *result) with(match []*Match) *result {
	if r == nil {
		return &result{own: match}
	}
	r.own = append(r.own, match[0])
	return r
}

// reach returns the place left of n where the labels of body are read, from the
// right.
func (n *node) reach(body string) *node {
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
func (n *node) child(label string) *node {
	g, wild := parseGlob(label)
	switch {
	case label == "*":
		if n.star == nil {
			n.star = &node{}
		}
		return n.star
	case wild:
		if n.globs == nil {
			n.globs = &globIndex{}
		}
		return n.globs.add(g)
	}
	c := n.literals[label]
	if c == nil {
		if n.literals == nil {
			n.literals = map[string]*node{}
		}
		c = &node{}
		n.literals[label] = c
	}
	return c
}

// settle links the results of n and of everything left of it to what holds there
// because of a "**" further right.
func (n *node) settle(up *result) {
	n.ends = n.ends.under(up)
	n.below = n.below.under(up)
	for _, c := range n.literals {
		c.settle(n.below)
	}
	if n.star != nil {
		n.star.settle(n.below)
	}
	if n.globs != nil {
		n.globs.each(func(c *node) { c.settle(n.below) })
	}
}

func (r *result) under(up *result) *result {
	if r == nil {
		return up
	}
	r.up = up
	r.flat = flatten([]*result{r})
	return r
}

// decide returns the matches of q, sorted; nil if there are none.
func (m *matcher) decide(q Name) []*Match {
	var room [8]*result
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
	return merge(lists)
}

// walk appends the results of the trie for q. It gives up, and says so, before it
// takes more than that many steps.
func (m *matcher) walk(q Name, lists []*result, steps int) (found []*result, whole bool) {
	var starts [maxLabels]uint8
	labels := 0
	for i := 0; i < len(q); i += 1 + int(q[i]) {
		starts[labels] = uint8(i)
		labels++
	}
	var roomA, roomB [8]*node
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
func (n *node) steps() int {
	if n.globs == nil {
		return 1
	}
	return 1 + len(n.globs.shapes) + n.globs.inner
}

// step appends the places that label leads to from n.
func (n *node) step(label string, next []*node) []*node {
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
func addResult(lists []*result, r *result) []*result {
	const few = 8
	if r == nil || len(lists) <= few && slices.Contains(lists, r) {
		return lists
	}
	return append(lists, r)
}

// flatten returns the merged matches of lists, nil if they are more than flatMax.
func flatten(lists []*result) []*Match {
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
	return merge(lists)
}

// merge returns the matches of lists and of their chains, each once, sorted.
func merge(lists []*result) []*Match {
	var seen resultSet
	var all []*Match
	for _, r := range lists {
		for ; r != nil && seen.add(r); r = r.up {
			all = append(all, r.own...)
		}
	}
	slices.SortFunc(all, compareMatches)
	return all
}

// resultSet is a set of results, without a map while they are few.
type resultSet struct {
	few   [16]*result
	count int
	many  map[*result]struct{}
}

// add tells whether r is new.
func (s *resultSet) add(r *result) bool {
	if s.many == nil {
		if slices.Contains(s.few[:s.count], r) {
			return false
		}
		if s.count < len(s.few) {
			s.few[s.count] = r
			s.count++
			return true
		}
		s.many = make(map[*result]struct{}, 4*len(s.few))
		for _, old := range s.few {
			s.many[old] = struct{}{}
		}
	}
	before := len(s.many)
	s.many[r] = struct{}{}
	return len(s.many) > before
}

func compareMatches(a, b *Match) int {
	if a.Policy != b.Policy {
		return strings.Compare(a.Policy, b.Policy)
	}
	return int(a.index - b.index)
}
