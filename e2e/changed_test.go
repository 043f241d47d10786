package e2e

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// history is a repository with the script, and with commits of the last days.
type history struct {
	t   *testing.T
	dir string
}

func newHistory(t *testing.T) history {
	t.Helper()
	h := history{t, t.TempDir()}
	script, err := os.ReadFile("changed")
	fatal.If(t, err)
	h.write("e2e/changed", string(script))
	fatal.If(t, os.Chmod(filepath.Join(h.dir, "e2e/changed"), 0o755))
	return h
}

func (h history) write(path, text string) {
	h.t.Helper()
	path = filepath.Join(h.dir, path)
	fatal.If(h.t, os.MkdirAll(filepath.Dir(path), 0o755))
	fatal.If(h.t, os.WriteFile(path, []byte(text), 0o644))
}

func (h history) git(args ...string) {
	h.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = h.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

// commit writes a file and commits everything at a time.
func (h history) commit(when, path string) {
	h.t.Helper()
	h.write(path, when)
	h.t.Setenv("GIT_COMMITTER_DATE", when)
	h.git("add", "-A")
	h.git("-c", "user.name=x", "-c", "user.email=x@x.test", "commit", "-q", "-m", path, "--date", when)
}

// changed returns what the script prints.
func (h history) changed(base string) string {
	h.t.Helper()
	cmd := exec.Command(filepath.Join(h.dir, "e2e/changed"), "crds/schematest", "e2e/lab", "image")
	cmd.Env = append(os.Environ(), "BASE="+base)
	out, err := cmd.Output()
	fatal.If(h.t, err)
	return strings.Join(strings.Fields(string(out)), " ")
}

// TestChanged: a folder is printed if its files, or those that its tests are of, changed.
func TestChanged(t *testing.T) {
	const all = "crds/schematest e2e/lab image"
	h := newHistory(t)
	want := func(what, base, want string) {
		t.Helper()
		if got := h.changed(base); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	want("no repository", "", all)
	h.git("init", "-q", "-b", "main")
	h.commit("2026-01-01T12:00:00Z", "README.md")
	want("one commit, of which none is older", "", all)
	h.commit("2026-01-05T12:00:00Z", "image/main.go")
	want("a commit of today", "", "image")
	h.commit("2026-01-05T13:00:00Z", "crds/namegate.io_x.yaml")
	want("two commits of today", "", "crds/schematest image")
	want("the last commit alone", "HEAD~1", "crds/schematest")
	h.commit("2026-01-08T12:00:00Z", "imagery/main.go")
	want("nothing but a folder of a longer name", "", "")
	want("a base that is no commit", "no-such", all)
	h.write("e2e/lab/new.go", "")
	want("a file that is not committed", "", "e2e/lab")
	h.write("image/main.go", "other")
	want("a new file and a changed one, neither committed", "", "e2e/lab image")
	h.git("checkout", "-q", "image/main.go")
	h.git("rm", "-q", "crds/namegate.io_x.yaml")
	want("a file that is deleted", "", "crds/schematest e2e/lab")
	h.commit("2026-01-11T12:00:00Z", "crds/again.yaml")
	h.git("mv", "crds/again.yaml", "other.yaml")
	h.commit("2026-01-11T13:00:00Z", "README.md")
	want("a file that is moved away", "HEAD~1", "crds/schematest")
	h.commit("2026-01-12T12:00:00Z", "go.sum")
	want("versions of dependencies", "HEAD~1", all)

	// A branch with commits of the day before is merged: they are part of the change.
	h.commit("2026-01-20T12:00:00Z", "a")
	h.git("checkout", "-q", "-b", "branch")
	h.commit("2026-01-21T12:00:00Z", "image/main.go")
	h.git("checkout", "-q", "main")
	t.Setenv("GIT_COMMITTER_DATE", "2026-01-25T12:00:00Z")
	h.git("-c", "user.name=x", "-c", "user.email=x@x.test", "merge", "-q", "--no-ff", "-m", "m", "branch")
	want("a merged branch of older commits", "", "image")

	shallow := history{t, filepath.Join(t.TempDir(), "shallow")}
	h.git("clone", "-q", "--depth", "1", "file://"+h.dir, shallow.dir)
	if got := shallow.changed(""); got != all {
		t.Errorf("a clone without history: %q", got)
	}
}

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
