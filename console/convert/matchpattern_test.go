package convert_test

import (
	"slices"
	"testing"

	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/testkit/converttest"
)

// TestMatchPattern: converted patterns match the names that Cilium's match. The module
// e2e/matchpattern compares the golden file, and random patterns, with Cilium itself.
func TestMatchPattern(t *testing.T) {
	answers := converttest.Read(t, "testdata/matchpattern.txt")
	var names []fqdn.Name
	for _, text := range answers.Names {
		name, err := fqdn.ParseName(text)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	compared, matched := 0, 0
	for _, p := range answers.Matched {
		here := converttest.Converted(t, p.Text)
		if len(here) == 0 {
			continue
		}
		for i, name := range names {
			was, is := slices.Contains(p.Names, answers.Names[i]), converttest.Match(here, name)
			if was != is {
				t.Errorf("%q and %s: %v in Cilium, %v as %v", p.Text, name, was, is, here)
			}
			if compared++; was {
				matched++
			}
		}
	}
	if compared < 50_000 || matched < 500 {
		t.Errorf("%d compared, %d matched", compared, matched)
	}
	t.Logf("%d compared, %d matched", compared, matched)
}
