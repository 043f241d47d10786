// Package converttest has what tests of converted patterns share: the patterns of a converted
// policy, and the golden file of what another system's matcher answers.
package converttest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/console/convert"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/source/manifest"
)

// Converted returns the patterns of a policy with a pattern of Cilium; none if it is refused.
func Converted(t testing.TB, pattern string) (patterns []fqdn.Pattern) {
	t.Helper()
	var r convert.Result
	if err := r.Add("p.yaml", []byte("apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: p}\nspec: {endpointSelector: {}, egress: [{toFQDNs: [{matchPattern: '"+pattern+"'}]}]}\n")); err != nil {
		t.Fatal(err)
	}
	r.Convert()
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

// Match tells whether one of the patterns matches a name.
func Match(patterns []fqdn.Pattern, name fqdn.Name) bool {
	return slices.ContainsFunc(patterns, func(p fqdn.Pattern) bool { return p.Matches(name) })
}

// Answers are a matcher's: of which Names it matches each pattern.
type Answers struct {
	Names   []string
	Matched []Pattern
}

// Pattern is a pattern with the names that it matches, in the order of Answers.Names.
type Pattern struct {
	Text  string
	Names []string
}

// Text is the golden file: comments, a line of all names, and a line for each pattern.
func (a Answers) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Names, and after each pattern those of them that Cilium's matchPattern matches.\n# make generate writes this file.\n%s\n", strings.Join(a.Names, " "))
	for _, p := range a.Matched {
		fmt.Fprintln(&b, strings.Join(append([]string{p.Text}, p.Names...), " "))
	}
	return b.String()
}

// Read reads the golden file.
func Read(t testing.TB, file string) (a Answers) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case fields[0] == "#":
		case a.Names == nil:
			a.Names = fields
		default:
			a.Matched = append(a.Matched, Pattern{fields[0], fields[1:]})
		}
	}
	return a
}
