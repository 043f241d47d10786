// Package short chooses the tests and rows of a run. `make test` runs go test -short, which leaves
// long tests out. `make test-long` runs those, and `make test-nightly` every test with all rows.
package short

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Nightly tells whether the run is that of `make test-nightly`, in which tests have all rows and
// most rounds.
func Nightly() bool { return os.Getenv("NIGHTLY") == "1" }

// Lists are the names of tests that runs leave out.
type Lists struct {
	// Long needs eight seconds or more each, or a program that few machines have: -short leaves
	// it out, and -left-out runs nothing else.
	Long []string
	// Nightly is left out by both.
	Nightly []string
}

// leftOut has Main run the tests that -short leaves out.
var leftOut = flag.Bool("left-out", false, "run only the tests that -short leaves out, but those of `make test-nightly`")

// Main runs the tests of the package in the working folder, as a TestMain does, and returns
// the exit code.
func Main(m *testing.M, lists Lists) int {
	flag.Parse()
	if !testing.Short() && !*leftOut {
		return m.Run()
	}
	skipped := slices.Concat(lists.Long, lists.Nightly)
	all, err := tests(".")
	for _, name := range skipped {
		if err == nil && !slices.Contains(all, name) {
			err = fmt.Errorf("no test has the name %s; correct the names in TestMain", name)
		}
	}
	if *leftOut {
		skipped = slices.DeleteFunc(all, func(name string) bool { return slices.Contains(lists.Long, name) })
	}
	if err == nil {
		err = flag.Set("test.skip", pattern(flag.Lookup("test.skip").Value.String(), skipped))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Rounds is how many rounds a test of random worlds has: the first number with -short, the
// second without, and the third with NIGHTLY=1 in the environment. With the race detector, which
// finds in few rounds what it finds in many, each of them is the one before.
func Rounds(change, all, nightly int) int {
	n := []int{change, change, all, nightly}
	level := 2
	if os.Getenv("NIGHTLY") == "1" {
		level = 3
	}
	if testing.Short() {
		level = 1
	}
	if raced {
		level--
	}
	return n[level]
}

// pattern returns the value of go test -skip for these names beside an earlier value.
func pattern(earlier string, names []string) string {
	skip := "^(" + strings.Join(names, "|") + ")$"
	if earlier != "" {
		skip = earlier + "|" + skip
	}
	return skip
}

// declaration is the declaration of a test.
var declaration = regexp.MustCompile(`(?m)^func (Test\w+)\((?:t )?\*testing\.T\)`)

// tests returns the names of the tests of a folder.
func tests(dir string) (out []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, m := range declaration.FindAllSubmatch(text, -1) {
			out = append(out, string(m[1]))
		}
	}
	return out, nil
}
