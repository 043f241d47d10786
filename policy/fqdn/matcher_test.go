package fqdn

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// entry is a pattern and its place in the order.
type entry struct {
	pattern *Pattern
	at      int
}

func matcherOf(t testing.TB, texts []string) *Matcher[entry] {
	t.Helper()
	var entries []entry
	for i, text := range texts {
		p, err := ParsePattern(text)
		fatal.If(t, err)
		entries = append(entries, entry{&p, i})
	}
	return NewMatcher(entries, func(e entry) *Pattern { return e.pattern }, nil)
}

// TestWalkStops where it has taken the steps that it may, at whatever costs them.
func TestWalkStops(t *testing.T) {
	for what, patterns := range map[string]func(i int) string{
		"places":         func(i int) string { return strings.Repeat("*.", i) + "test" },
		"ends of globs":  func(i int) string { return strings.Repeat("a", i/50+1) + "*" + strings.Repeat("a", i%50+1) + ".test" },
		"inner of globs": func(i int) string { return "a*" + strings.Repeat("a*", i%20) + fmt.Sprint(i) + "*a.test" },
	} {
		t.Run(what, func(t *testing.T) {
			var texts []string
			for i := range 100 {
				texts = append(texts, patterns(i+1))
			}
			m := matcherOf(t, texts)
			n := mustName(t, strings.Repeat("a.", 90)+strings.Repeat("a", 60)+".test")
			whole, ended := m.walk(n, nil, math.MaxInt)
			if !ended {
				t.Fatal("a walk without a bound stopped")
			}
			if _, ended := m.walk(n, nil, 40); ended {
				t.Error("the walk took no more than 40 steps")
			}
			if again, ended := m.walk(n, nil, 20000); !ended || !slices.Equal(whole, again) {
				t.Errorf("with steps enough: %v, %d results and not %d", ended, len(again), len(whole))
			}
		})
	}
}

// TestGlobsAreWalkedOnce also where a label begins with the byte 0.
func TestGlobsAreWalkedOnce(t *testing.T) {
	const labels = 30
	m := matcherOf(t, []string{strings.Repeat("*a.", labels-1) + "*a"})
	for _, label := range []string{"\x02\x00a", "\x02ba", "\x01a"} {
		found, ended := m.walk(Name(strings.Repeat(label, labels)), nil, 3*labels)
		if len(found) != 1 || !ended {
			t.Errorf("%q: %d results, ended: %v", label, len(found), ended)
		}
	}
}

func TestExactNames(t *testing.T) {
	m := matcherOf(t, []string{"a.test", "*.test", "b.test", "a.test"})
	got := maps.Collect(m.Exact())
	if a := got[mustName(t, "a.test")]; len(got) != 2 || len(a) != 2 || a[0].at != 0 || a[1].at != 3 {
		t.Errorf("%v", got)
	}
	for range m.Exact() {
		break
	}
	if (*Matcher[entry])(nil).Match(mustName(t, "a.test")) != nil {
		t.Error("a nil matcher finds something")
	}
}
