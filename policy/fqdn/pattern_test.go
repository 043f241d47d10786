package fqdn

import (
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/diff"
)

func TestPatternMatches(t *testing.T) {
	for _, c := range []struct{ pattern, yes, no string }{
		{"www.x.io", "www.x.io WWW.X.IO www.x.io.", "a.b.x.io x.io evilx.io a.www.x.io ."},
		{"*.x.io", "www.x.io a.x.io", "a.b.x.io x.io evilx.io . io"},
		{"**.x.io", "www.x.io a.b.x.io a.b.c.x.io", "x.io evilx.io io ."},
		{"w*.x.io", "www.x.io w.x.io", "a.b.x.io x.io evilx.io www.a.x.io xw.x.io"},
		{"*", "www.x.io a.b.x.io x.io evilx.io io .", ""},
		{"**", "www.x.io a.b.x.io x.io evilx.io io .", ""},
		{"*-cdn.x.io", "a-cdn.x.io -cdn.x.io", "cdn.x.io a-cdn-b.x.io"},
		{"a*b.x.io", "ab.x.io aab.x.io a-b-b.x.io", "a.x.io b.x.io aba.x.io"},
		{"a*a.x.io", "aa.x.io aba.x.io", "a.x.io"}, // one a cannot be both
		{"a*b*c.x.io", "abc.x.io axbxc.x.io abbcc.x.io", "ac.x.io acb.x.io"},
		{"*b*.x.io", "b.x.io abc.x.io", "ac.x.io"},
		{"a*b*b.x.io", "abb.x.io abxb.x.io", "ab.x.io"},
		{"a.*.x.io", "a.b.x.io", "a.x.io a.b.c.x.io b.b.x.io"},
		{"**.a.*.x.io", "c.a.b.x.io d.c.a.b.x.io", "a.b.x.io c.b.b.x.io"},
		{"**.*.x.io", "a.b.x.io a.b.c.x.io", "b.x.io x.io"},
		{"*.*", "x.io", "io www.x.io"},
		{"w*", "www w", "www.io xw ."},
		{"*.io.", "x.io", "www.x.io"},
		{"**.io.", "x.io www.x.io", "io"},
		{"*.", "x.io .", ""},
		{"_x-*.X.IO", "_x-1.x.io", "x-1.x.io"},
		{"w.x.io", `w.x.io`, `w\.x.io w\.x\.io`}, // a dot inside a label is no separator
		{"*.io", `w\.x.io`, `w\.x\.io`},
	} {
		p, err := ParsePattern(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		for _, n := range strings.Fields(c.yes) {
			if !p.Matches(mustName(t, n)) {
				t.Errorf("%s does not match %s", c.pattern, n)
			}
		}
		for _, n := range strings.Fields(c.no) {
			if p.Matches(mustName(t, n)) {
				t.Errorf("%s matches %s", c.pattern, n)
			}
		}
	}
	if (Pattern{}).Matches("") || (Pattern{}).Matches(mustName(t, "x.io")) {
		t.Error("the zero pattern matches something")
	}
}

func TestPatternText(t *testing.T) {
	for text, want := range map[string]string{"WWW.X.io.": "www.x.io", "*.X.io.": "*.x.io", "**": "**", "*.": "*"} {
		p, err := ParsePattern(text)
		if err != nil || p.String() != want {
			t.Errorf("%q is %q, %v", text, p, err)
		}
		n, exact := p.Exact()
		if exact != !strings.Contains(want, "*") || exact && n != mustName(t, want) {
			t.Errorf("%q: exact %v, %v", text, n, exact)
		}
	}
}

func TestParsePatternRefuses(t *testing.T) {
	const (
		bare    = "write a bare domain name of letters, digits, - and _, without scheme, port or path"
		regular = "patterns are no regular expressions; write * for any characters of one label, ** as the whole first label for one or more labels, or each name"
		stars   = "write * for a part of one label, or **.example.org for everything below example.org"
	)
	for text, want := range map[string]string{
		"":                       "write a name such as www.example.org",
		".":                      "write a name such as www.example.org",
		"https://example.org":    `holds ":"; ` + bare,
		"example.org/path":       `holds "/"; ` + bare,
		"a b.test":               `holds " "; ` + bare,
		`a\.b.test`:              `holds "\\", and ` + regular,
		"a?.test":                `holds "?", and ` + regular,
		"kafka0[1-5].test":       `holds "[", and ` + regular,
		"(a|b).test":             `holds "(", and ` + regular,
		"^a.test$":               `holds "^", and ` + regular,
		".example.org":           "an empty label; write one dot between labels and none in front",
		"a..example.org":         "an empty label",
		"example.org..":          "an empty label",
		"a" + label63 + ".test":  "a label of 64 characters; write at most 63",
		"*" + label63 + ".test":  "a label of 64 characters; write at most 63",
		longName + "b":           "254 characters; write at most 253",
		"a.**.test":              stars,
		"**a.test":               stars,
		"a**.test":               stars,
		"***.test":               stars,
		"**.**.test":             stars,
		"bücher.example":         "is not ASCII; write xn--bcher-kva.example",
		"*.Bücher.example":       "is not ASCII; write *.xn--bcher-kva.example",
		"bü*.example":            "write the A-label (xn--…) of each label, a wildcard outside of it",
		"\xff.example":           "is not ASCII; write",
		"a.пример.испытание":     "write a.xn--e1afmkfd.xn--80akhbyknj4f",
		strings.Repeat("ü", 300): "write the A-label",
	} {
		p, err := ParsePattern(text)
		diff.Fails(t, want, err, text, p)
		if p.Matches(mustName(t, "a.test")) {
			t.Errorf("%q matches although it is refused", text)
		}
	}
}

func TestParseExactRefusesWildcards(t *testing.T) {
	if _, err := ParseExact("*.example.org"); err == nil || !strings.Contains(err.Error(), "write it under pattern, not under name") {
		t.Error(err)
	}
	if p, err := ParseExact("www.example.org"); err != nil || !p.Matches(mustName(t, "www.example.org")) {
		t.Errorf("%v, %v", p, err)
	}
}

func FuzzParsePattern(f *testing.F) {
	for _, s := range []string{"*", "**", "**.example.org", "w*w.*.example.org.", "a**", "é", "..", longName, "*.*"} {
		f.Add(s, "www.example.org")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		p, err := ParsePattern(text)
		if err != nil {
			diff.Equal(t, kindNone, p.kind, text, "the pattern beside the error")
			return
		}
		again, err := ParsePattern(p.String())
		if err != nil || again.String() != p.String() {
			t.Errorf("%q: %q read again is %q, %v", text, p, again, err)
		}
		n, err := ParseName(name)
		if err != nil {
			return
		}
		diff.Equal(t, twinMatches(text, n), p.Matches(n), text, "matches", n)
	})
}
