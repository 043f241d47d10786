package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	fatal.If(t, err)
	return string(text)
}

var flagLine = regexp.MustCompile("(?m)^(?:\\| `|  .{2,4}  ?)--([a-z-]+)")

// TestFlagsAreDocumented compares the agent's help with the table of
// docs/operations.md.
func TestFlagsAreDocumented(t *testing.T) {
	help, err := exec.Command("go", "run", "../../cmd/namegate", "agent", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, help)
	}
	names := func(text string) []string {
		var out []string
		for _, m := range flagLine.FindAllStringSubmatch(text, -1) {
			if m[1] != "help" {
				out = append(out, m[1])
			}
		}
		slices.Sort(out)
		return out
	}
	there, said := names(string(help)), names(document(t, "docs/operations.md"))
	if len(there) == 0 || !slices.Equal(there, said) {
		t.Errorf("the agent has %q, docs/operations.md says %q", there, said)
	}
}

var link = regexp.MustCompile(`\]\(([^)#]+)?(#[^)]+)?\)`)

// TestLinks follows the links between documents.
func TestLinks(t *testing.T) {
	names := []string{"README.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, err)
		}
		for _, f := range found {
			names = append(names, strings.TrimPrefix(f, "../../"))
		}
	}
	for _, name := range names {
		for _, m := range link.FindAllStringSubmatch(document(t, name), -1) {
			target := name
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(name), m[1])
			}
			info, err := os.Stat(filepath.Join("../..", target))
			if err != nil {
				t.Errorf("%s links to %s, which is not there", name, target)
				continue
			}
			if m[2] != "" && !info.IsDir() && !hasHeading(document(t, target), m[2][1:]) {
				t.Errorf("%s links to %s%s, which has no such heading", name, target, m[2])
			}
		}
	}
}

// noAnchor is what the name of a heading's anchor leaves out.
var noAnchor = regexp.MustCompile(`[^\pL\pN _-]`)

func hasHeading(text, anchor string) bool {
	for line := range strings.Lines(text) {
		heading := strings.TrimSpace(strings.TrimLeft(line, "#"))
		if strings.HasPrefix(line, "#") && strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}
