package convert

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/short"
)

// TestWildcards: what an asterisk of each system becomes.
func TestWildcards(t *testing.T) {
	dialects := map[string]dialect{"cilium": ciliumNames, "calico": calicoNames, "antrea": antreaNames, "aws": awsNames, "ovn": ovnNames, "istio": istioNames, "gke": gkeNames}
	for _, c := range []struct{ dialect, text, want string }{
		{"cilium", "www.x.test", "www.x.test"}, {"cilium", "*.x.test", "*.x.test"}, {"cilium", "*x.test", "*x.test"}, {"cilium", "a**b.x.test", "a*b.x.test changed"},
		{"cilium", "**.x.test", "**.x.test wider"}, {"cilium", "*", "*"}, {"cilium", "**", "* wider"}, {"cilium", "a.**.test", "a.*.test changed"},
		{"calico", "*.x.test", "**.x.test"}, {"calico", "www.*.test", "www.*.test narrower"}, {"calico", "*.*.test", "refused"}, {"calico", "w*.test", "refused"},
		{"antrea", "*.x.test", "**.x.test"}, {"antrea", "*x.test", "*x.test **.*x.test"}, {"antrea", "*.*.test", "**.*.test"},
		{"antrea", "*.*x.test", "**.*x.test"}, {"antrea", "a*.x.test", "a*.x.test narrower"}, {"antrea", "*a*.test", "*a*.test narrower"}, {"antrea", "*", "*"},
		{"aws", "*.x.test", "**.x.test"}, {"aws", "a.*.test", "refused"}, {"aws", "*x.test", "refused"}, {"aws", "*", "refused"},
		{"ovn", "*.x.test", "*.x.test"}, {"ovn", "w*.x.test", "refused"},
		{"gke", "**.x.test", "*.x.test changed"}, {"gke", "**", "* wider"},
		{"istio", "*.x.test", "**.x.test"}, {"istio", "*.*.test", "refused"},
		{"istio", "a b.test", "refused"}, {"ovn", "x..test", "refused"},
	} {
		n, err := dialects[c.dialect].convert(c.text)
		var got []string
		for _, m := range n.matches {
			got = append(got, pattern(m).String())
		}
		if n.grade != "" {
			got = append(got, string(n.grade))
		}
		if err != nil {
			got = []string{"refused"}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s of %s is %s (%v), want %s", c.text, c.dialect, text, err, c.want)
		}
	}
}

// TestWildcardsRandom: for random patterns and names, the patterns are the same names as the
// system's regular expression, and where that is said, fewer.
func TestWildcardsRandom(t *testing.T) {
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
	same, fewer, rounds := 0, 0, short.Rounds(4_000, 20_000, 200_000)
	for range rounds {
		from := text("a*.", 8)
		for name, d := range map[string]struct {
			dialect
			asterisk string
		}{
			"antrea": {antreaNames, ".*"}, "calico": {calicoNames, "[^.]+([.][^.]+)*"}, "aws": {awsNames, "[^.]+([.][^.]+)*"},
			"ovn": {ovnNames, "[^.]+"}, "istio": {istioNames, "[^.]+([.][^.]+)*"},
		} {
			n, err := d.convert(from)
			if err != nil || strings.Trim(strings.TrimSuffix(from, "."), "*") == "" {
				continue // refused, or every name
			}
			there := regexp.MustCompile("^" + strings.ReplaceAll(strings.ReplaceAll(strings.TrimSuffix(from, "."), ".", "[.]"), "*", d.asterisk) + "$")
			for range 20 {
				asked := text("ab.", 8)
				parsed, err := fqdn.ParseName(asked)
				if err != nil || strings.HasSuffix(asked, ".") {
					continue
				}
				here := false
				for _, m := range n.matches {
					here = here || pattern(m).Matches(parsed)
				}
				if was := there.MatchString(asked); here && !was || was && !here && n.grade != Narrower {
					t.Fatalf("%s of %s and %s: %v there, %v here (%v)", from, name, asked, was, here, n)
				} else if was && here {
					same++
				} else if was {
					fewer++
				}
			}
		}
	}
	if same < rounds/20 || fewer < rounds/2_000 {
		t.Errorf("only %d matches, %d narrower", same, fewer)
	}
}
