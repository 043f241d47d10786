package documents

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const document = "# Title\n```sh\n# first\na -x    # works\nb \\\n  c # rejected: d\n\ne     # exit code 1: f\n```\ntext\n\n```yaml a.yaml\nx: y\n```\n```\nplain\n```\n"

func TestBlocks(t *testing.T) {
	got := Blocks(document)[1:]
	want := []Block{{"yaml", "a.yaml", "x: y\n"}, {"", "", "plain\n"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestCommands(t *testing.T) {
	want := []Command{{"a -x", Succeeds}, {"b   c", Rejected}, {"e", Negative}}
	if d := cmp.Diff(want, Commands(document)); d != "" {
		t.Error(d)
	}
}
