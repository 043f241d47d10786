// Package short leaves the long tests of a package out of go test -short, which `make test`
// runs. `make test-all` runs every test.
package short

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Main runs the tests of the package in the working folder, as a TestMain does, and returns
// the exit code. With -short it leaves the tests of these names out, each of which needs
// eight seconds or more, or a program that few machines have.
func Main(m *testing.M, long ...string) int {
	flag.Parse()
	if !testing.Short() {
		return m.Run()
	}
	if missing, err := absent(".", long); err != nil || len(missing) > 0 {
		fmt.Fprintf(os.Stderr, "no test has the name %s (%v); correct the names in TestMain\n", strings.Join(missing, ", "), err)
		return 1
	}
	if err := flag.Set("test.skip", pattern(flag.Lookup("test.skip").Value.String(), long)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// pattern returns the value of go test -skip for these names beside an earlier value.
func pattern(earlier string, names []string) string {
	skip := "^(" + strings.Join(names, "|") + ")$"
	if earlier != "" {
		skip = earlier + "|" + skip
	}
	return skip
}

// absent returns the names that are no test of a folder.
func absent(dir string, names []string) (out []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var all []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all = append(all, text...)
	}
	for _, name := range names {
		if !bytes.Contains(all, []byte("\nfunc "+name+"(t ")) {
			out = append(out, name)
		}
	}
	return out, nil
}
