package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// testCell is a cell of the table of promises: a package and a test function in each
	// pair of backquotes, or e2e/kube and the name of a scenario of its TestNamegate.
	testCell = regexp.MustCompile("^`([a-z0-9/]+) (Test[A-Za-z0-9]+|[a-z]+)`$")
	// promiseRow is a line of the table.
	promiseRow = regexp.MustCompile(`^\| (.+) \| (.+) \|(?: (.*))? \|$`)
)

// TestPromisesHaveTheirTests: the table of CONTRIBUTING.md names tests that exist. Each promise
// has a home, and at most one test that shows it with packets.
func TestPromisesHaveTheirTests(t *testing.T) {
	text, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n## Promises and their tests\n")
	table, _, _ = strings.Cut(table, "\n## ")
	if !found {
		t.Fatal("CONTRIBUTING.md has no table of promises")
	}
	rows := 0
	for line := range strings.Lines(table) {
		row := promiseRow.FindStringSubmatch(strings.TrimSpace(line))
		if row == nil || row[1] == "promise" || strings.HasPrefix(row[1], "---") {
			continue
		}
		rows++
		for _, cell := range strings.Split(row[2], ", ") {
			checkTestExists(t, row[1], cell)
		}
		if row[3] != "" {
			checkTestExists(t, row[1], row[3])
		}
	}
	if rows < 30 {
		t.Errorf("the table has %d rows", rows)
	}
}

// checkTestExists reads the test files of the package that a cell names.
func checkTestExists(t *testing.T, promise, cell string) {
	t.Helper()
	named := testCell.FindStringSubmatch(cell)
	if named == nil {
		t.Errorf("%s: %q is not one package and test", promise, cell)
		return
	}
	declared := "\nfunc " + named[2] + "(t "
	if !strings.HasPrefix(named[2], "Test") {
		declared = `{"` + named[2] + `", `
	}
	files, err := filepath.Glob(filepath.Join("..", named[1], "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), declared) {
			return
		}
	}
	t.Errorf("%s: there is no test %s in %s", promise, named[2], named[1])
}
