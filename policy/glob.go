package policy

import "strings"

// glob is one label of a pattern, split at its wildcards: "a*b*c" is the prefix
// "a", the middle "b" and the suffix "c".
type glob struct {
	prefix  string
	middles []string
	suffix  string
	literal bool // no wildcard: prefix is the whole label
}

func parseGlob(label string) glob {
	parts := strings.Split(label, "*")
	last := len(parts) - 1
	if last == 0 {
		return glob{prefix: label, literal: true}
	}
	return glob{prefix: parts[0], middles: parts[1:last], suffix: parts[last]}
}

// isStar tells whether the glob is one wildcard alone.
func (g *glob) isStar() bool {
	return !g.literal && g.prefix == "" && g.suffix == "" && len(g.middles) == 0
}

// matches tells whether label is the glob with each wildcard replaced by any
// bytes or by none.
func (g *glob) matches(label string) bool {
	if g.literal {
		return label == g.prefix
	}
	return len(label) >= len(g.prefix)+len(g.suffix) &&
		strings.HasPrefix(label, g.prefix) && strings.HasSuffix(label, g.suffix) &&
		holdsInOrder(label[len(g.prefix):len(label)-len(g.suffix)], g.middles)
}

// holdsInOrder tells whether s holds the parts one after the other. Taking the
// first place of each leaves most room for the rest.
func holdsInOrder(s string, parts []string) bool {
	for _, part := range parts {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}

// globIndex finds the globs that match a label without trying each: the globs of
// one pair of prefix and suffix lengths lie in one map. So the cost grows with the
// number of such pairs, and with globs that have middles and agree in both ends.
type globIndex struct {
	shapes []globShape
}

type globShape struct {
	prefix, suffix int // lengths
	byEnds         map[globEnds]*globBucket
}

type globEnds struct{ prefix, suffix string }

type globBucket struct {
	plain *node // of the glob without middles, nil if there is none
	inner []innerGlob
}

type innerGlob struct {
	key     string // the middles joined by "*"
	middles []string
	next    *node
}

// add returns the node of g, making it if it is new.
func (x *globIndex) add(g glob) *node {
	b := x.bucket(len(g.prefix), len(g.suffix), globEnds{g.prefix, g.suffix})
	if len(g.middles) == 0 {
		if b.plain == nil {
			b.plain = &node{}
		}
		return b.plain
	}
	key := strings.Join(g.middles, "*")
	for i := range b.inner {
		if b.inner[i].key == key {
			return b.inner[i].next
		}
	}
	n := &node{}
	b.inner = append(b.inner, innerGlob{key: key, middles: g.middles, next: n})
	return n
}

func (x *globIndex) bucket(prefix, suffix int, ends globEnds) *globBucket {
	for i := range x.shapes {
		s := &x.shapes[i]
		if s.prefix != prefix || s.suffix != suffix {
			continue
		}
		b := s.byEnds[ends]
		if b == nil {
			b = &globBucket{}
			s.byEnds[ends] = b
		}
		return b
	}
	b := &globBucket{}
	x.shapes = append(x.shapes, globShape{prefix, suffix, map[globEnds]*globBucket{ends: b}})
	return b
}

// find appends the nodes of the globs that match label.
func (x *globIndex) find(label string, found []*node) []*node {
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
			if holdsInOrder(label[s.prefix:len(label)-s.suffix], b.inner[j].middles) {
				found = append(found, b.inner[j].next)
			}
		}
	}
	return found
}

// each calls f with every node of the index.
func (x *globIndex) each(f func(*node)) {
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
