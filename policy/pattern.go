package policy

import (
	"fmt"
	"strings"
)

// Pattern is one `name` or `pattern` of a rule. The zero value matches nothing.
type Pattern struct {
	text  string
	exact Name   // of kindExact
	globs []glob // the labels from left to right, without a leading "**"
	kind  patternKind
}

type patternKind uint8

const (
	kindNone  patternKind = iota
	kindExact             // one name
	kindGlob              // as many labels as globs
	kindDeep              // at least one label, then globs
	kindAll               // every name, the root too
)

// ParseExact reads a `name`: labels of letters, digits, "-" and "_", the trailing
// dot optional. The error says what to write instead.
func ParseExact(s string) (Pattern, error) {
	if strings.Contains(s, "*") {
		return Pattern{}, fmt.Errorf("%s holds a wildcard; write it under pattern, not under name", quote(s))
	}
	return ParsePattern(s)
}

// ParsePattern reads a `pattern`: a name in which "*" stands for any characters
// of one label, or for none, and a first label "**" for one or more labels. A
// label that is "*" alone is exactly one label; "*" or "**" alone is every name,
// the root too. Without a wildcard it is that one name.
// The error says what to write instead.
func ParsePattern(s string) (Pattern, error) {
	if err := checkText(s); err != nil {
		return Pattern{}, err
	}
	text := strings.ToLower(strings.TrimSuffix(s, "."))
	if text == "*" || text == "**" {
		return Pattern{text: text, kind: kindAll}, nil
	}
	if !strings.Contains(text, "*") {
		n, err := ParseName(text)
		return Pattern{text: text, exact: n, kind: kindExact}, err
	}
	p := Pattern{text: text, kind: kindGlob}
	if below, deep := strings.CutPrefix(text, "**."); deep {
		p.kind, text = kindDeep, below
	}
	for label := range strings.SplitSeq(text, ".") {
		p.globs = append(p.globs, parseGlob(label))
	}
	return p, nil
}

// Matches tells whether the pattern matches the name. It is the plain reading of
// the pattern; views decide by an index.
func (p Pattern) Matches(n Name) bool {
	extra := n.NumLabels() - len(p.globs)
	switch p.kind {
	case kindAll:
		return true
	case kindExact:
		return p.exact == n
	case kindGlob:
		if extra != 0 {
			return false
		}
	case kindDeep:
		if extra < 1 {
			return false
		}
	default:
		return false
	}
	i := -extra
	for label := range n.Labels() {
		if i >= 0 && !p.globs[i].matches(label) {
			return false
		}
		i++
	}
	return true
}

// String returns the pattern in lower case without a trailing dot.
func (p Pattern) String() string { return p.text }

// Exact returns the name of a pattern without a wildcard, and whether it is one.
func (p Pattern) Exact() (Name, bool) { return p.exact, p.kind == kindExact }
