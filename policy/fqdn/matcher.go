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

// MaxClasses bounds the classes of the matches of one name: further ones are left out.
const MaxClasses = flatMax

// mergeMax bounds the matches that NewMatcher merges for one place.
const mergeMax = 16 * flatMax

// Matcher finds the matches of a name. Exact names are in one map, wildcards in a
// trie of labels from the right; both hold equal patterns once. It is immutable and
// safe for many readers. A nil Matcher finds nothing.
type Matcher[M any] struct {
	exact   map[Name]*result[M]
	root    node[M]
	pattern func(M) *Pattern
	matches []M     // in order
	classes []int32 // of matches, doubled, and one more for an exact name; nil: no match has one
	// numClasses is more than the highest class.
	numClasses int
	seen       []uint8                // by class, while the matcher is made
	globs      map[globAt[M]]*node[M] // while the matcher is made
	left       map[int32]struct{}     // places of matches that are left out
}

// node is one place in the trie: some labels from the right are read.
type node[M any] struct {
	ends     *result[M] // of the patterns that end here
	below    *result[M] // of the patterns whose "**" is left of this label
	literals map[string]*node[M]
	star     *node[M]
	globs    map[int32][]globNode[M] // by the first byte of the labels that they match, 0 where that is any
}

// globNode is the place that a glob leads to.
type globNode[M any] struct {
	glob
	next *node[M]
}

// globAt is a glob in the trie, by its text.
type globAt[M any] struct {
	of   *node[M]
	text string
}

// result is the matches of one place, and a chain of places whose matches hold
// there as well.
type result[M any] struct {
	own  []int32 // the places in matches of those that count, in order
	up   *result[M]
	flat []M  // own and the chain's, in order; nil if that is more than flatMax
	over bool // some of flat, or else of own, are left out
}

// NewMatcher returns the matcher of matches, in their order. It keeps the slice. Matches of one
// class are alike: where a name has many, only the first of them count, and of more than
// MaxClasses classes the first; even and odd classes are counted apart. Matches of a negative class
// always count, as do all if class is nil.
func NewMatcher[M any](matches []M, pattern func(M) *Pattern, class func(M) int) *Matcher[M] {
	m := &Matcher[M]{exact: make(map[Name]*result[M], len(matches)), matches: matches, pattern: pattern, globs: map[globAt[M]]*node[M]{}}
	if class != nil && len(matches) > flatMax {
		m.classify(class)
	}
	places := make([]int32, len(matches))
	for i := range matches {
		places[i] = int32(i)
		m.add(pattern(matches[i]), places[i:i+1:i+1])
	}
	m.link(&m.root, nil)
	var room [8]*result[M]
	for name, r := range m.exact {
		m.reduce(r)
		if lists, whole := m.walk(name, room[:0], walkMax); whole {
			m.flatten(r, append(lists, r))
		}
	}
	m.seen, m.globs = nil, nil
	return m
}

// add takes a slice of one match, of which most results are made.
func (m *Matcher[M]) add(p *Pattern, match []int32) {
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
		n = m.descend(p.body())
	}
	if p.kind == kindGlob || p.kind == kindAll {
		n.ends = n.ends.with(match)
	}
	if p.kind == kindDeep || p.kind == kindAll {
		n.below = n.below.with(match)
	}
}

func (r *result[M]) with(match []int32) *result[M] {
	if r == nil {
		return &result[M]{own: match}
	}
	r.own = append(r.own, match[0])
	return r
}

// descend returns the place where the labels of body are read, from the right.
func (m *Matcher[M]) descend(body string) *node[M] {
	n := &m.root
	for {
		dot := strings.LastIndexByte(body, '.')
		n = m.child(n, body[dot+1:])
		if dot < 0 {
			return n
		}
		body = body[:dot]
	}
}

// child returns the place left of n that a label of a pattern leads to, making it
// if it is new.
func (m *Matcher[M]) child(n *node[M], label string) *node[M] {
	g, wild := parseGlob(label)
	switch {
	case label == "*":
		if n.star == nil {
			n.star = &node[M]{}
		}
		return n.star
	case wild:
		at := globAt[M]{n, label}
		c := m.globs[at]
		if c == nil {
			if n.globs == nil {
				n.globs = map[int32][]globNode[M]{}
			}
			c = &node[M]{}
			m.globs[at], n.globs[g.first()] = c, append(n.globs[g.first()], globNode[M]{g, c})
		}
		return c
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
	for _, globs := range n.globs {
		for i := range globs {
			m.link(globs[i].next, n.below)
		}
	}
}

func (m *Matcher[M]) under(r, up *result[M]) *result[M] {
	if r == nil {
		return up
	}
	r.up = up
	m.reduce(r)
	m.flatten(r, []*result[M]{r})
	return r
}

// Exact yields the names of the patterns without a wildcard, in no order, each with those of its
// own matches that count.
func (m *Matcher[M]) Exact() iter.Seq2[Name, []M] {
	return func(yield func(Name, []M) bool) {
		for name, r := range m.exact {
			if !yield(name, m.at(r.own)) {
				return
			}
		}
	}
}

// Match is Find without over.
func (m *Matcher[M]) Match(q Name) []M {
	matches, _ := m.Find(q)
	return matches
}

// Find returns the matches of q, in order; nil if there are none. It is shared and must
// not be changed. over tells whether further ones are left out.
func (m *Matcher[M]) Find(q Name) (matches []M, over bool) {
	if m == nil {
		return nil, false
	}
	var room [8]*result[M]
	lists := room[:0]
	if r := m.exact[q]; r != nil {
		if r.flat != nil {
			return r.flat, r.over
		}
		lists = append(lists, r)
	}
	lists, _ = m.walk(q, lists, math.MaxInt)
	switch {
	case len(lists) == 0:
		return nil, false
	case len(lists) == 1 && lists[0].flat != nil:
		return lists[0].flat, lists[0].over
	}
	places, over := m.merge(lists)
	if len(places) > flatMax && m.classes != nil {
		places = m.within(places, make([]uint8, m.numClasses), func(int32) { over = true })
	}
	return m.at(places), over
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
			globs, open := n.globs[int32(label[0])], n.globs[anyFirst]
			if steps -= 1 + len(globs) + len(open); steps < 0 {
				return nil, false
			}
			before := len(next)
			next = n.step(label, next, globs, open)
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

// step appends the places that label leads to from n, by some of its globs.
func (n *node[M]) step(label string, next []*node[M], globs ...[]globNode[M]) []*node[M] {
	if c := n.literals[label]; c != nil {
		next = append(next, c)
	}
	if n.star != nil {
		next = append(next, n.star)
	}
	for _, some := range globs {
		for i := range some {
			if some[i].matches(label) {
				next = append(next, some[i].next)
			}
		}
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
