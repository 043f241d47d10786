package fqdn

import (
	"iter"
	"math/bits"
	"slices"
)

// classify notes the classes of the matches.
func (m *Matcher[M]) classify(class func(M) int) {
	m.classes = make([]int32, len(m.matches))
	for i := range m.matches {
		c := class(m.matches[i])
		m.numClasses = max(m.numClasses, c+1)
		m.classes[i] = int32(2 * c)
		if m.pattern(m.matches[i]).kind == kindExact {
			m.classes[i]++
		}
	}
	m.seen, m.left = make([]uint8, m.numClasses), map[int32]struct{}{}
}

// Left yields, in order, the matches that are left out of a name that has more than MaxClasses
// classes: of the exact names, and of the names that a pattern covers with those that cover all of its
// names. Find leaves out those of names where other patterns meet.
func (m *Matcher[M]) Left() iter.Seq[M] {
	return func(yield func(M) bool) {
		if m == nil || len(m.left) == 0 {
			return
		}
		type alike struct {
			class   int32
			pattern string
		}
		left := map[alike]bool{}
		of := func(i int32) alike { return alike{m.classes[i], m.pattern(m.matches[i]).String()} }
		for i := range m.left {
			left[of(i)] = true
		}
		for i := range m.matches {
			if left[of(int32(i))] && !yield(m.matches[i]) {
				return
			}
		}
	}
}

// at returns the matches at sorted places, of which there is one at least.
func (m *Matcher[M]) at(places []int32) []M {
	first, n := int(places[0]), len(places)
	if int(places[n-1]) == first+n-1 {
		return m.matches[first : first+n : first+n]
	}
	out := make([]M, n)
	for i, at := range places {
		out[i] = m.matches[at]
	}
	return out
}

// The bits of a class that within has seen: matches of a pattern, of an exact name, or none counts.
const (
	seenWild uint8 = 1 << iota
	seenExact
	seenLeft
)

// within returns those of sorted places whose matches count, in the same slice, and calls left
// with those that are left out beyond MaxClasses. A class may have an exact name and a pattern, and as many alike ones as
// make flatMax in all. seen is zero.
func (m *Matcher[M]) within(places []int32, seen []uint8, left func(int32)) []int32 {
	kept, count := places[:0], [2]int{}
	for _, i := range places {
		if m.classes[i] < 0 {
			kept = append(kept, i)
			continue
		}
		c, bit := m.classes[i]>>1, seenWild<<(m.classes[i]&1)
		if seen[c] == 0 {
			if count[c&1]++; count[c&1] > MaxClasses {
				seen[c] = seenLeft
			}
		}
		switch {
		case seen[c] == seenLeft:
			left(i)
		case seen[c]&bit == 0 || len(kept) < flatMax:
			seen[c] |= bit
			kept = append(kept, i)
		}
	}
	return kept
}

// reduce reduces the matches of a place to those that count.
func (m *Matcher[M]) reduce(r *result[M]) {
	if m.classes != nil && len(r.own) > flatMax {
		r.own = slices.Clip(m.note(r, r.own))
	}
}

// note is within while the matcher is made: it notes which matches are left out of a place.
func (m *Matcher[M]) note(r *result[M], places []int32) []int32 {
	all := slices.Clone(places)
	places = m.within(places, m.seen, func(i int32) {
		r.over = true
		m.left[i] = struct{}{}
	})
	for _, i := range all {
		if c := m.classes[i] >> 1; c >= 0 {
			m.seen[c] = 0
		}
	}
	return places
}

// flatten merges the matches of lists ahead of the question, unless they are many.
func (m *Matcher[M]) flatten(r *result[M], lists []*result[M]) {
	if len(lists) == 1 && r.up == nil { // nothing to merge, however long
		r.flat = m.at(r.own)
		return
	}
	most, count := flatMax, 0
	if m.classes != nil {
		most = mergeMax
	}
	for _, list := range lists {
		for ; list != nil; list = list.up {
			if count += len(list.own); count > most {
				return
			}
		}
	}
	places, over := m.merge(lists)
	r.over = r.over || over
	if len(places) > flatMax {
		places = m.note(r, places)
	}
	if len(places) <= flatMax {
		r.flat = m.at(places)
	}
}

// merge returns the places of the matches of lists and of their chains, each once, in order,
// and whether one of these left matches out.
func (m *Matcher[M]) merge(lists []*result[M]) (places []int32, over bool) {
	const few = 16
	var room [few]*result[M]
	seen := room[:0]
	for _, r := range lists {
		for ; r != nil && !slices.Contains(seen, r); r = r.up {
			if seen = append(seen, r); len(seen) == few || len(places)+len(r.own) > mergeMax {
				return m.mergeMany(lists)
			}
			places, over = append(places, r.own...), over || r.over
		}
	}
	slices.Sort(places)
	return slices.Compact(places), over
}

// mergeMany is merge by a bit for each match.
func (m *Matcher[M]) mergeMany(lists []*result[M]) (places []int32, over bool) {
	set, count := make([]uint64, (len(m.matches)+63)/64), 0
	has := func(i int32) bool { return set[i/64]>>(i%64)&1 != 0 }
	for _, r := range lists {
		for ; r != nil && !has(r.own[0]); r = r.up { // a match is in one place of a chain
			over = over || r.over
			for _, i := range r.own {
				set[i/64] |= 1 << (i % 64)
			}
			count += len(r.own)
		}
	}
	places = make([]int32, 0, count)
	for word, all := range set {
		for ; all != 0; all &= all - 1 {
			places = append(places, int32(64*word+bits.TrailingZeros64(all)))
		}
	}
	return places, over
}
