package documents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/testkit/fatal"
)

const document = "# Title\n```sh\n# first\na -x    # works\nb \\\n  c # rejected: d\n\ne     # exit code 1: f\ng # follows, until h\n```\ntext\n\n```yaml a.yaml\nx: y\n```\n```\nplain\n```\n"

func TestBlocks(t *testing.T) {
	got := Blocks(document)[1:]
	want := []Block{{"yaml", "a.yaml", "x: y\n"}, {"", "", "plain\n"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestCommands(t *testing.T) {
	want := []Command{{"a -x", Succeeds}, {"b   c", Rejected}, {"e", Negative}, {"g", Follows}}
	if d := cmp.Diff(want, Commands(document)); d != "" {
		t.Error(d)
	}
}

// TestPagesAreRun: each page for the first hour that has commands is in a test that runs them.
func TestPagesAreRun(t *testing.T) {
	pages, err := filepath.Glob("../../docs/start/*.md")
	fatal.If(t, err)
	var tests strings.Builder
	for _, path := range []string{"../kube/documents_test.go", "../scenarios/documents_test.go"} {
		text, err := os.ReadFile(path)
		fatal.If(t, err)
		tests.Write(text)
	}
	commands := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		fatal.If(t, err)
		n := len(Commands(string(text)))
		if commands += n; n > 0 && !strings.Contains(tests.String(), strings.TrimPrefix(page, "../../")+`"`) {
			t.Errorf("no test runs the commands of %s", page)
		}
	}
	if commands < 60 {
		t.Errorf("%d commands", commands)
	}
}
