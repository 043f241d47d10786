package matchpattern

import (
	"flag"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/cilium/pkg/fqdn/matchpattern"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/converttest"
)

var update = flag.Bool("update", false, "write the golden file anew")

const golden = "../../console/convert/testdata/matchpattern.txt"

// maker makes patterns and names of few letters, so that they often match.
type maker struct{ *rand.Rand }

func (g maker) text(letters string, most int) string {
	b := make([]byte, 1+g.IntN(most))
	for i := range b {
		b[i] = letters[g.IntN(len(letters))]
	}
	return string(b)
}

func (g maker) patterns() []string {
	out := []string{"*", "**", "*.", "**.", "*.x", "**.x", "***.x", "*x", "x*", "a.*.x", "a.**.x", "a**b.x", "sub*.x"}
	for range 1500 {
		out = append(out, g.text("aab**.-_", 9))
	}
	return out
}

// name is one that a policy can have; false for another text.
func (g maker) name() (string, fqdn.Name, bool) {
	asked := g.text("aabx.-_", 9)
	name, err := fqdn.ParseName(asked)
	return asked, name, err == nil && !strings.HasSuffix(asked, ".")
}

// cilium is Cilium's matcher of a pattern.
func cilium(t *testing.T, pattern string) *regexp.Regexp {
	t.Helper()
	there, err := matchpattern.ValidateWithoutCache(matchpattern.Sanitize(pattern))
	if err != nil {
		t.Fatal(err)
	}
	return there
}

// TestMatchPattern: converted patterns match the names that Cilium's match.
func TestMatchPattern(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	g := maker{rand.New(rand.NewPCG(seed, 1))}
	matched, compared := 0, 0
	for _, pattern := range g.patterns() {
		there, here := cilium(t, pattern), converttest.Converted(t, pattern)
		if len(here) == 0 {
			continue
		}
		for range 200 {
			asked, name, ok := g.name()
			if !ok {
				continue
			}
			is := converttest.Match(here, name)
			if was := there.MatchString(asked + "."); was != is {
				t.Fatalf("%q and %s: %v in Cilium, %v as %v", pattern, asked, was, is, here)
			} else if was {
				matched++
			}
			compared++
		}
	}
	if compared < 50_000 || matched < 500 {
		t.Errorf("%d compared, %d matched", compared, matched)
	}
}

// TestGolden: the golden file, with which the converter's test compares, has Cilium's answers.
func TestGolden(t *testing.T) {
	g := maker{rand.New(rand.NewPCG(1, 1))}
	var a converttest.Answers
	for len(a.Names) < 400 {
		if asked, _, ok := g.name(); ok && !slices.Contains(a.Names, asked) {
			a.Names = append(a.Names, asked)
		}
	}
	known := map[string]bool{}
	for _, pattern := range g.patterns() {
		if known[pattern] {
			continue
		}
		known[pattern] = true
		p, there := converttest.Pattern{Text: pattern}, cilium(t, pattern)
		for _, name := range a.Names {
			if there.MatchString(name + ".") {
				p.Names = append(p.Names, name)
			}
		}
		a.Matched = append(a.Matched, p)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(a.Text()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(golden); err != nil || string(text) != a.Text() {
		t.Errorf("the golden file is stale (%v); run: make generate", err)
	}
}
