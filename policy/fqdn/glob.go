package fqdn

import "strings"

// glob is one label of a pattern with a wildcard in it, cut at the first and the
// last of its wildcards: "a*b*c*d" is "a", "b*c" and "d".
type glob struct {
	prefix, middle, suffix string
}

// parseGlob returns the glob, or false for a label without a wildcard.
func parseGlob(label string) (glob, bool) {
	first := strings.IndexByte(label, '*')
	if first < 0 {
		return glob{}, false
	}
	last := strings.LastIndexByte(label, '*')
	g := glob{prefix: label[:first], suffix: label[last+1:]}
	if first < last {
		g.middle = label[first+1 : last]
	}
	return g, true
}

// matchLabel tells whether label is text with each wildcard replaced by any bytes
// or by none.
func matchLabel(text, label string) bool {
	g, wild := parseGlob(text)
	if !wild {
		return label == text
	}
	return len(label) >= len(g.prefix)+len(g.suffix) &&
		strings.HasPrefix(label, g.prefix) && strings.HasSuffix(label, g.suffix) &&
		holdsInOrder(label[len(g.prefix):len(label)-len(g.suffix)], g.middle)
}

// holdsInOrder tells whether s holds the parts of middle one after the other.
// Taking the first place of each leaves most room for the rest.
func holdsInOrder(s, middle string) bool {
	for middle != "" {
		part, rest, _ := strings.Cut(middle, "*")
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, middle = s[i+len(part):], rest
	}
	return true
}

// globIndex finds the globs that match a label without trying each: the globs of
// one pair of prefix and suffix lengths lie in one map. So the cost grows with the
// number of such pairs, and with globs of several wildcards that agree in both ends.
type globIndex[M any] struct {
	shapes []globShape[M]
	inner  int // globs of several wildcards
}

type globShape[M any] struct {
	prefix, suffix int // lengths
	byEnds         map[globEnds]*globBucket[M]
}

type globEnds struct{ prefix, suffix string }

type globBucket[M any] struct {
	plain *node[M] // of the glob with one wildcard, nil if there is none
	inner []innerGlob[M]
	known map[string]*node[M] // of inner, by middle
}

type innerGlob[M any] struct {
	middle string
	next   *node[M]
}

// add returns the node of g, making it if it is new.
func (x *globIndex[M]) add(g glob) *node[M] {
	b := x.bucket(len(g.prefix), len(g.suffix), globEnds{g.prefix, g.suffix})
	if g.middle == "" {
		if b.plain == nil {
			b.plain = &node[M]{}
		}
		return b.plain
	}
	if n := b.known[g.middle]; n != nil {
		return n
	}
	if b.known == nil {
		b.known = map[string]*node[M]{}
	}
	n := &node[M]{}
	b.known[g.middle] = n
	x.inner++
	b.inner = append(b.inner, innerGlob[M]{g.middle, n})
	return n
}

func (x *globIndex[M]) bucket(prefix, suffix int, ends globEnds) *globBucket[M] {
	for i := range x.shapes {
		s := &x.shapes[i]
		if s.prefix != prefix || s.suffix != suffix {
			continue
		}
		b := s.byEnds[ends]
		if b == nil {
			b = &globBucket[M]{}
			s.byEnds[ends] = b
		}
		return b
	}
	b := &globBucket[M]{}
	x.shapes = append(x.shapes, globShape[M]{prefix, suffix, map[globEnds]*globBucket[M]{ends: b}})
	return b
}

// find appends the nodes of the globs that match label.
func (x *globIndex[M]) find(label string, found []*node[M]) []*node[M] {
	for i := range x.shapes {
		s := &x.shapes[i]
		if len(label) < s.prefix+s.suffix {
			continue
		}
		b := s.byEnds[globEnds{label[:s.prefix], label[len(label)-s.suffix:]}]
		if b == nil {
			continue
		}
		if b.plain != nil {
			found = append(found, b.plain)
		}
		for j := range b.inner {
			if holdsInOrder(label[s.prefix:len(label)-s.suffix], b.inner[j].middle) {
				found = append(found, b.inner[j].next)
			}
		}
	}
	return found
}

// each calls f with every node of the index.
func (x *globIndex[M]) each(f func(*node[M])) {
	for i := range x.shapes {
		for _, b := range x.shapes[i].byEnds {
			if b.plain != nil {
				f(b.plain)
			}
			for j := range b.inner {
				f(b.inner[j].next)
			}
		}
	}
}
