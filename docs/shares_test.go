package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// aBound is the resource of a share.Bound in Go source.
var aBound = regexp.MustCompile(`share\.Bound\{(?:Resource: )?"([^"]+)"`)

// TestSharesHaveTheirRows: the table Shares of security.md has a row for each bound of the code, and
// each row a test.
func TestSharesHaveTheirRows(t *testing.T) {
	text, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n## Shares\n")
	table, _, _ = strings.Cut(table, "\n## ")
	if !found {
		t.Fatal("security.md has no table Shares")
	}
	rows := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 4 || strings.TrimSpace(cells[0]) == "resource" {
			continue
		}
		resource := strings.TrimSpace(cells[0])
		rows[resource] = true
		for _, cell := range strings.Split(strings.TrimSpace(cells[3]), ", ") {
			checkTestExists(t, resource, cell)
		}
	}
	bounds := 0
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range aBound.FindAllStringSubmatch(string(source), -1) {
			if bounds++; !rows[m[1]] {
				t.Errorf("%s: the table Shares has no row for %s", path, m[1])
			}
		}
		return err
	})
	if err != nil || bounds < 3 {
		t.Errorf("%d bounds in the code, error %v", bounds, err)
	}
}
