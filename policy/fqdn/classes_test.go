package fqdn

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// classed is a pattern with its place in the order, and its class.
type classed struct {
	pattern   *Pattern
	text      string
	at, class int
}

func classedMatcher(t testing.TB, texts []string, class func(i int) int) ([]*classed, *Matcher[*classed]) {
	t.Helper()
	var all []*classed
	for i, text := range texts {
		p, err := ParsePattern(text)
		fatal.If(t, err)
		all = append(all, &classed{&p, text, i, class(i)})
	}
	return all, NewMatcher(all, func(c *classed) *Pattern { return c.pattern }, func(c *classed) int { return c.class })
}

// twinClasses is the slow and obvious twin: the classes that count of all that match, and whether
// others do not.
func twinClasses(all []*classed) (count map[int]bool, over bool) {
	count = map[int]bool{}
	var kept [2]int
	for _, c := range all {
		if _, known := count[c.class]; known || c.class < 0 {
			continue
		}
		kept[c.class&1]++
		count[c.class] = kept[c.class&1] <= MaxClasses
		over = over || !count[c.class]
	}
	return count, over
}

// TestClassesLikeTwin: of a name with many matches those count that always do, and the first of each
// class that counts. None of another class counts.
func TestClassesLikeTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 4))
	overs, alike := 0, 0
	for range 40 {
		var texts []string
		for range 1 + r.IntN(4000) {
			texts = append(texts, randomPattern(r))
		}
		classes := 1 + r.IntN(600)
		all, m := classedMatcher(t, texts, func(int) int { return max(-1, r.IntN(classes+5)-5) })
		left := map[*classed]bool{}
		for c := range m.Left() {
			left[c] = true
		}
		for range 60 {
			n := randomName(t, r)
			var want []*classed
			for _, c := range all {
				if twinMatches(c.text, n) {
					want = append(want, c)
				}
			}
			got, over := m.Find(n)
			count, wantOver := twinClasses(want)
			if over != wantOver || !slices.IsSortedFunc(got, func(a, b *classed) int { return a.at - b.at }) {
				t.Fatalf("%s: over is %v, %d of %d matches", n, over, len(got), len(want))
			}
			first := map[int]bool{}
			for _, c := range want {
				has := slices.Contains(got, c)
				counts := c.class < 0 || count[c.class]
				must := c.class < 0 || counts && !first[c.class] || len(want) <= flatMax
				if first[c.class] = true; has && !counts || must && !has {
					t.Fatalf("%s: match %d of class %d, has %v, must %v", n, c.at, c.class, has, must)
				}
				if c.class >= 0 && !has {
					alike++
				}
			}
			if over {
				overs++
			}
			if len(got) > 5*flatMax+len(slices.DeleteFunc(want, func(c *classed) bool { return c.class >= 0 })) {
				t.Fatalf("%s: %d matches", n, len(got))
			}
		}
		for c := range left {
			if c.class < 0 {
				t.Fatalf("match %d is left out, though it always counts", c.at)
			}
		}
	}
	if overs < 20 || alike < 1000 {
		t.Errorf("%d names with too many classes, %d matches that are alike or left out", overs, alike)
	}
}

// TestLeft: those beyond MaxClasses are told for an exact name, for a pattern, and for an exact name
// with a pattern that covers it.
func TestLeft(t *testing.T) {
	for what, text := range map[string]func(i int) string{
		"exact":   func(int) string { return "a.test" },
		"pattern": func(int) string { return "**.test" },
		"both":    func(i int) string { return []string{"a.test", "**.test"}[i%2] },
	} {
		var texts []string
		for i := range 2 * (MaxClasses + 3) {
			texts = append(texts, text(i/2))
		}
		_, m := classedMatcher(t, texts, func(i int) int { return 2 * (i / 2) })
		var left []int
		for c := range m.Left() {
			left = append(left, c.at)
		}
		diff.Error(t, []int{128, 129, 130, 131, 132, 133}, left, what)
		if got, over := m.Find(mustName(t, "a.test")); !over || len(got) > 2*MaxClasses || got[len(got)-1].class != 2*(MaxClasses-1) {
			t.Errorf("%s: %d matches, over %v", what, len(got), over)
		}
	}
}
