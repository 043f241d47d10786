package fqdn

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/diff"
)

// twinMatches is the slow and obvious twin of a pattern: it splits both into
// labels and compares them from the left.
func twinMatches(pattern string, n Name) bool {
	pattern = strings.ToLower(strings.TrimSuffix(pattern, "."))
	if pattern == "*" || pattern == "**" {
		return true
	}
	want, got := strings.Split(pattern, "."), slices.Collect(n.Labels())
	if want[0] == "**" {
		for want = want[1:]; len(got) > len(want); got = got[1:] {
			if len(got) == len(want)+1 {
				return twinLabels(want, got[1:])
			}
		}
		return false
	}
	return twinLabels(want, got)
}

func twinLabels(want, got []string) bool {
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if !twinGlob(want[i], got[i]) {
			return false
		}
	}
	return true
}

// twinGlob tries every way to give characters to a wildcard.
func twinGlob(glob, label string) bool {
	switch {
	case glob == "":
		return label == ""
	case glob[0] == '*':
		return twinGlob(glob[1:], label) || label != "" && twinGlob(glob, label[1:])
	}
	return label != "" && glob[0] == label[0] && twinGlob(glob[1:], label[1:])
}

// Few different labels make many overlaps.
var (
	twinLabelsOf = []string{"a", "b", "ab", "ba", "aab", "abab", "b-a", "a-b-a"}
	twinGlobsOf  = []string{"*", "*", "a*", "*a", "a*b", "*b*", "a*b*a", "*-*", "a*a", "*ab"}
)

func randomPattern(r *rand.Rand) string {
	if r.IntN(30) == 0 {
		return []string{"*", "**"}[r.IntN(2)]
	}
	var labels []string
	for range 1 + r.IntN(3) {
		from := twinLabelsOf
		if r.IntN(3) == 0 {
			from = twinGlobsOf
		}
		labels = append(labels, from[r.IntN(len(from))])
	}
	if r.IntN(4) == 0 {
		labels = append([]string{"**"}, labels...)
	}
	return strings.Join(labels, ".")
}

func randomName(t testing.TB, r *rand.Rand) Name {
	if r.IntN(50) == 0 {
		return ""
	}
	var labels []string
	for range 1 + r.IntN(4) {
		labels = append(labels, twinLabelsOf[r.IntN(len(twinLabelsOf))])
	}
	return mustName(t, strings.Join(labels, "."))
}

// TestMatcherLikeTwin asks matchers, patterns and the twin the same questions.
func TestMatcherLikeTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var texts []string
		for range 1 + r.IntN(200) {
			texts = append(texts, randomPattern(r))
		}
		m := matcherOf(t, texts)
		for range 100 {
			compareWithTwin(t, m, texts, randomName(t, r))
		}
	}
}

func FuzzMatcher(f *testing.F) {
	f.Add("*.a.b **.b a*.a.b", "ab.a.b")
	f.Add("* ** a.b", ".")
	f.Add("a*b*a.b a*a.b **.a*b.b", "aba.b")
	f.Fuzz(func(t *testing.T, texts, name string) {
		n, err := ParseName(name)
		if err != nil {
			return
		}
		var good []string
		for _, text := range strings.Fields(texts) {
			if _, err := ParsePattern(text); err == nil {
				good = append(good, text)
			}
		}
		compareWithTwin(t, matcherOf(t, good), good, n)
	})
}

func compareWithTwin(t *testing.T, m *Matcher[entry], texts []string, n Name) {
	t.Helper()
	var want, got []int
	for i, text := range texts {
		if twinMatches(text, n) {
			want = append(want, i)
		}
	}
	for _, e := range m.Match(n) {
		got = append(got, e.at)
		if !e.pattern.Matches(n) {
			t.Errorf("%s does not match %s by itself", e.pattern, n)
		}
	}
	diff.Fatal(t, want, got, texts, "asked for", n)
}
