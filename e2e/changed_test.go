package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestConcerns: the script knows the folders of this repository that a module's Go files name.
func TestConcerns(t *testing.T) {
	script, err := os.ReadFile("changed")
	fatal.If(t, err)
	modules := 0
	for _, pattern := range []string{"../*/go.mod", "../*/*/go.mod"} {
		files, err := filepath.Glob(pattern)
		fatal.If(t, err)
		for _, file := range files {
			dir := filepath.Dir(file)
			module, err := filepath.Rel("..", dir)
			fatal.If(t, err)
			known := []string{module}
			if m := regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(module) + `\) echo (.*) ;;$`).FindSubmatch(script); m != nil {
				known = append(known, strings.Fields(string(m[1]))...)
			}
			for _, path := range named(t, dir, module) {
				if !covered(known, path) {
					t.Errorf("the tests of %s name %s, of which e2e/changed knows nothing", module, path)
				}
			}
			modules++
		}
	}
	if modules < 9 {
		t.Errorf("%d modules", modules)
	}
}

// shared are packages that every test may import.
const shared = "testkit/fatal"

// covered tells whether a path is one of the known or below it.
func covered(known []string, path string) bool {
	for _, k := range known {
		if path == shared || path == k || strings.HasPrefix(path, k+"/") {
			return true
		}
	}
	return false
}

var (
	imported = regexp.MustCompile(`"github\.com/namegate/namegate/([^"]+)"`)
	read     = regexp.MustCompile(`"((?:\.\./)+[a-z][^"]*)"`)
	built    = regexp.MustCompile(`"\./((?:cmd|e2e)/[^"]+)"`)
)

// named returns the paths of the repository that the Go files of a module name: imports, files
// that they read, and programs that they build.
func named(t *testing.T, dir, module string) (paths []string) {
	t.Helper()
	fatal.If(t, filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, m := range imported.FindAllSubmatch(text, -1) {
			paths = append(paths, string(m[1]))
		}
		for _, m := range built.FindAllSubmatch(text, -1) {
			paths = append(paths, string(m[1]))
		}
		for _, m := range read.FindAllSubmatch(text, -1) {
			path := filepath.Join(module, string(m[1]))
			if !strings.HasPrefix(path, "bin") && !strings.HasPrefix(path, "..") {
				paths = append(paths, path)
			}
		}
		return nil
	}))
	return paths
}
