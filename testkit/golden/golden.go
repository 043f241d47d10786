// Package golden compares texts with files, and writes these anew where a test runs with -update.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/namegate/namegate/testkit/fatal"
)

// Update tells whether expectations are to be written anew.
var Update = flag.Bool("update", false, "write the golden files anew")

// Compare compares a text with testdata/NAME.golden.
func Compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *Update {
		fatal.If(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with -update", err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s is not as it was (-want +got):\n%s", path, d)
	}
}
