package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// files are a module whose packages have the names of why they race or do not.
var files = map[string]string{
	"go.mod": "module example.org/m\n\ngo 1.26\n",

	"starts/a.go":      "package starts\n\nfunc F(f func()) { go f() }\n",
	"starts/a_test.go": "package starts\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) { F(func() {}) }\n",

	"imports/a.go":      "package imports\n\nimport \"example.org/m/starts\"\n\nfunc F() { starts.F(nil) }\n",
	"imports/a_test.go": "package imports\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {}\n",

	"testimports/a.go":      "package testimports\n\nvar N int\n",
	"testimports/a_test.go": "package testimports_test\n\nimport (\n\t\"testing\"\n\n\t\"example.org/m/imports\"\n)\n\nfunc TestF(t *testing.T) { imports.F() }\n",

	"untested/a.go": "package untested\n\nfunc F(f func()) { go f() }\n",

	"parallel/a.go":      "package parallel\n\nvar N int\n",
	"parallel/a_test.go": "package parallel\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) { t.Parallel() }\n",

	"group/a.go":      "package group\n\nvar N int\n",
	"group/a_test.go": "package group\n\nimport (\n\t\"sync\"\n\t\"testing\"\n)\n\nfunc TestF(t *testing.T) {\n\tvar g sync.WaitGroup\n\tg.Go(func() {})\n}\n",

	"server/a.go":      "package server\n\nvar N int\n",
	"server/a_test.go": "package server\n\nimport (\n\t\"net/http/httptest\"\n\t\"testing\"\n)\n\nfunc TestF(t *testing.T) { httptest.NewServer(nil) }\n",

	"pure/a.go":      "package pure\n\nimport \"example.org/m/parallel\"\n\n// F does not go anywhere.\nfunc F() string { _ = parallel.N; return \"go f()\" }\n",
	"pure/a_test.go": "package pure\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) { F() }\n",
}

func TestSplit(t *testing.T) {
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		fatal.If(t, os.MkdirAll(filepath.Dir(path), 0o755))
		fatal.If(t, os.WriteFile(path, []byte(text), 0o600))
	}
	racing, others, err := split(dir, []string{"./..."})
	fatal.If(t, err)
	const m = "example.org/m/"
	if want := []string{m + "group", m + "imports", m + "parallel", m + "server", m + "starts", m + "testimports"}; !slices.Equal(racing, want) {
		t.Errorf("racing are %q, want %q", racing, want)
	}
	if want := []string{m + "pure", m + "untested"}; !slices.Equal(others, want) {
		t.Errorf("the others are %q, want %q", others, want)
	}
	if racing, _, err = split(dir, []string{"./pure", "./group"}); err != nil || !slices.Equal(racing, []string{m + "group"}) {
		t.Errorf("of two, racing are %q, %v", racing, err)
	}
	if _, _, err = split(dir, nil); err == nil {
		t.Error("no packages are no error")
	}
}

// TestThisModule: packages with goroutines that are easily overlooked, and compilers that have
// none.
func TestThisModule(t *testing.T) {
	const m = "github.com/namegate/namegate/"
	racing, others, err := split(".", []string{m + "..."})
	fatal.If(t, err)
	for _, p := range []string{"agent", "agent/metrics", "enforcer", "enforcer/grants", "kernel/nft", "proxy", "proxy/cache", "source/kube", "status", "console/web"} {
		if !slices.Contains(racing, m+p) {
			t.Errorf("%s is not among those that race", p)
		}
	}
	for _, p := range []string{"policy", "policy/compile", "policy/fqdn", "proxy/wire"} {
		if !slices.Contains(others, m+p) {
			t.Errorf("%s is among those that race", p)
		}
	}
}
