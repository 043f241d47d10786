package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

func TestRead(t *testing.T) {
	dir, second := t.TempDir(), t.TempDir()
	write(t, dir, "p.yaml", other("one"))
	write(t, dir, "q.yaml", "kind: [")
	write(t, second, "p.yaml", other("one")+"---\n"+other("two"))
	write(t, second, "text", other("three"))
	in := func(dir, name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		paths            []string
		policies         string
		errors, problems int
	}{
		{nil, "", 0, 0},
		{[]string{dir}, "shop/one", 1, 0},
		{[]string{in(dir, "p.yaml")}, "shop/one", 0, 0},
		{[]string{in(dir, "q.yaml")}, "", 1, 0},
		{[]string{in(second, "text")}, "shop/three", 0, 0},
		{[]string{in(dir, "p.yaml"), in(dir, "p.yaml")}, "shop/one", 0, 0},
		{[]string{in(dir, "p.yaml"), second}, "shop/one shop/two", 0, 1}, // one twice
	} {
		s, err := Read(c.paths...)
		if err != nil || policyNames(s) != c.policies || len(s.FileErrors) != c.errors || len(s.Problems) != c.problems {
			t.Errorf("%s: policies %q, errors %v, problems %v, %v", c.paths, policyNames(s), s.FileErrors, s.Problems, err)
		}
	}
}

func TestReadWithoutAFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(filepath.Join(dir, "nowhere")); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Error(err)
	}
	if os.Geteuid() == 0 {
		t.Skip("root may read every folder")
	}
	fatal.If(t, os.Chmod(dir, 0))
	if _, err := Read(dir); err == nil {
		t.Error("no error for a folder that may not be read")
	}
}
