package matchpatterntest

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cilium/cilium/pkg/fqdn/matchpattern"

	"github.com/namegate/namegate/console/convert"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/source/manifest"
)

// converted returns the patterns of a policy with a pattern of Cilium; none if it is refused.
func converted(t *testing.T, pattern string) (patterns []fqdn.Pattern) {
	t.Helper()
	var r convert.Result
	if err := r.Add("p.yaml", []byte("apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: p}\nspec: {endpointSelector: {}, egress: [{toFQDNs: [{matchPattern: '"+pattern+"'}]}]}\n")); err != nil {
		t.Fatal(err)
	}
	parts, err := manifest.Inspect("out.yaml", r.YAML)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		for _, o := range part.Objects {
			for _, rule := range o.Policy.Spec.Egress {
				for _, m := range rule.Matches {
					text := ""
					if m.Name != nil {
						text = *m.Name
					} else {
						text = *m.Pattern
					}
					p, err := fqdn.ParsePattern(text)
					if err != nil {
						t.Fatal(err)
					}
					patterns = append(patterns, p)
				}
			}
		}
	}
	if len(patterns) == 0 && r.Certain() {
		t.Errorf("%q is lost without a word", pattern)
	}
	return patterns
}

// TestMatchPattern: converted patterns match the names that Cilium's match.
func TestMatchPattern(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	text := func(letters string, most int) string {
		b := make([]byte, 1+r.IntN(most))
		for i := range b {
			b[i] = letters[r.IntN(len(letters))]
		}
		return string(b)
	}
	patterns := []string{"*", "**", "*.", "**.", "*.x", "**.x", "***.x", "*x", "x*", "a.*.x", "a.**.x", "a**b.x", "sub*.x"}
	for range 1500 {
		patterns = append(patterns, text("aab**.-_", 9))
	}
	matched, compared := 0, 0
	for _, pattern := range patterns {
		there, err := matchpattern.ValidateWithoutCache(matchpattern.Sanitize(pattern))
		if err != nil {
			t.Fatal(err)
		}
		here := converted(t, pattern)
		if len(here) == 0 {
			continue
		}
		for range 200 {
			asked := text("aabx.-_", 9)
			name, err := fqdn.ParseName(asked)
			if err != nil || strings.HasSuffix(asked, ".") {
				continue
			}
			is := false
			for _, p := range here {
				is = is || p.Matches(name)
			}
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
