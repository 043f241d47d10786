package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/namegate/namegate/testkit/fatal"
)

// maxDesignLines keeps a file of docs/design readable in one sitting.
const maxDesignLines = 150

// TestDesign: each package is covered by a file of docs/design, each folder that such a file names
// exists, and each file has its checklist and tells what is not written yet.
func TestDesign(t *testing.T) {
	files, err := filepath.Glob("design/*.md")
	fatal.If(t, err)
	covered := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		fatal.If(t, err)
		if n := strings.Count(string(text), "\n"); n > maxDesignLines {
			t.Errorf("%s has %d lines; divide the subject or shorten it to %d", file, n, maxDesignLines)
		}
		for _, heading := range []string{"\n## Checklist for reviewers\n\n- [ ] ", "\n## Not written yet\n\n- "} {
			if !strings.Contains(string(text), heading) {
				t.Errorf("%s lacks %q", file, heading)
			}
		}
		_, rest, found := strings.Cut(string(text), "\nApplies to: ")
		if !found {
			t.Errorf("%s does not say which folders it applies to", file)
		}
		rest, _, _ = strings.Cut(rest, "\n")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(rest, -1) {
			if info, err := os.Stat(filepath.Join("..", m[1])); err != nil || !info.IsDir() {
				t.Errorf("%s names %s, which is no folder", file, m[1])
			}
			if other, ok := covered[m[1]]; ok {
				t.Errorf("%s and %s both apply to %s", file, other, m[1])
			}
			covered[m[1]] = file
		}
	}
	sources, err := filepath.Glob("../*")
	fatal.If(t, err)
	for _, top := range sources {
		fatal.If(t, filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			dir := strings.TrimPrefix(filepath.Dir(path), "../")
			for at := dir; at != "."; at = filepath.Dir(at) {
				if covered[at] != "" {
					return nil
				}
			}
			t.Errorf("no file of docs/design applies to %s", dir)
			return nil
		}))
	}
}
