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
	return g.matches(label)
}

// anyFirst is the first byte of labels that may begin with any.
const anyFirst = -1

// first returns the first byte of every label that the glob matches, or anyFirst.
func (g *glob) first() int32 {
	if g.prefix == "" {
		return anyFirst
	}
	return int32(g.prefix[0])
}

func (g *glob) matches(label string) bool {
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
