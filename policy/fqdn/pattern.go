package fqdn

import (
	"fmt"
	"strings"
)

// Pattern is one `name` or `pattern` of a rule. The zero value matches nothing.
type Pattern struct {
	text   string
	exact  Name // of kindExact
	kind   patternKind
	labels uint8 // of body
}

type patternKind uint8

const (
	kindNone  patternKind = iota
	kindExact             // one name
	kindGlob              // label by label
	kindDeep              // at least one label, then label by label
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
	if strings.HasPrefix(text, deepMark) {
		p.kind = kindDeep
	}
	p.labels = uint8(1 + strings.Count(p.body(), "."))
	return p, nil
}

// deepMark begins the patterns of kindDeep.
const deepMark = "**."

// body returns the labels of a pattern of kindGlob or kindDeep that match label by
// label, joined by dots.
func (p *Pattern) body() string { return strings.TrimPrefix(p.text, deepMark) }

// Matches tells whether the pattern matches the name. It is the plain reading of
// the pattern; a Matcher finds the matches of many by an index.
func (p Pattern) Matches(n Name) bool {
	extra := n.NumLabels() - int(p.labels)
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
	rest := p.body()
	for label := range n.Labels() {
		if extra--; extra >= 0 {
			continue
		}
		var text string
		text, rest, _ = strings.Cut(rest, ".")
		if !matchLabel(text, label) {
			return false
		}
	}
	return true
}

// String returns the pattern in lower case without a trailing dot.
func (p Pattern) String() string { return p.text }

// Exact returns the name of a pattern without a wildcard, and whether it is one.
func (p Pattern) Exact() (Name, bool) { return p.exact, p.kind == kindExact }

// WildLabels returns how many labels a pattern with a wildcard has: each may be a place
// of a Matcher's trie.
func (p *Pattern) WildLabels() int { return int(p.labels) }

// MatchesBelow tells whether the pattern can match a name that has that many labels left
// of suffix.
func (p *Pattern) MatchesBelow(suffix Name, labels int) bool {
	all := labels + suffix.NumLabels()
	switch p.kind {
	case kindAll:
		return true
	case kindExact:
		return p.exact.NumLabels() == all && p.exact.HasSuffix(suffix)
	case kindGlob:
		if int(p.labels) != all {
			return false
		}
	case kindDeep:
		if int(p.labels) >= all {
			return false
		}
	default:
		return false
	}
	tail := make([]string, 0, maxLabels)
	for label := range suffix.Labels() {
		tail = append(tail, label)
	}
	for body := p.body(); body != "" && len(tail) > 0; tail = tail[:len(tail)-1] {
		dot := strings.LastIndexByte(body, '.')
		if !matchLabel(body[dot+1:], tail[len(tail)-1]) {
			return false
		}
		body = body[:max(dot, 0)]
	}
	return true
}
