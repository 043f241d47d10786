package corefile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// folder writes files into a folder of its own and returns its path.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		fatal.If(t, os.MkdirAll(filepath.Dir(path), 0o700))
		fatal.If(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

const root = ". {\nforward . 192.0.2.1\n"

// TestImportsEnd: what imports itself, or too much, is refused with its place.
func TestImportsEnd(t *testing.T) {
	deep := map[string]string{"Corefile": root + "import 0\n}\n"}
	for i := range maxDepth {
		deep[fmt.Sprint(i)] = fmt.Sprintf("import %d\n", i+1)
	}
	deep[fmt.Sprint(maxDepth)] = "hold 5m\n"
	wide := map[string]string{"Corefile": root + "import a/*\n}\n"}
	for i := range 20 {
		wide[fmt.Sprintf("a/%d", i)] = "import ../b/*\n"
		wide[fmt.Sprintf("b/%d", i)] = "# nothing\n"
	}
	t.Setenv("NAMEGATE_TEST_IMPORT", "import")
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"itself":         {map[string]string{"Corefile": root + "import Corefile\n}\n"}, "Corefile:3: import: "},
		"its folder":     {map[string]string{"Corefile": root + "import *\n}\n"}, "imports itself in the end"},
		"each other":     {map[string]string{"Corefile": root + "import a\n}\n", "a": "import b\n", "b": "\nimport a\n"}, "b:2: import: "},
		"by environment": {map[string]string{"Corefile": root + "{$NAMEGATE_TEST_IMPORT} {%NOTHING%}Corefile\n}\n"}, "Corefile:3: import: "},
		"outside":        {map[string]string{"Corefile": "import Corefile\n" + root + "}\n"}, "Corefile:1: import: "},
		"deep":           {deep, fmt.Sprintf("is more than %d files deep", maxDepth)},
		"many":           {wide, fmt.Sprintf("more than %d files", maxFiles)},
		"large":          {map[string]string{"Corefile": root + "import a\n}\n", "a": strings.Repeat("#", maxBytes)}, "more than 1024 KiB"},
		"a folder":       {map[string]string{"Corefile": root + "import a\n}\n", "a/b": ""}, "is not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, tt.files)
			if _, err := Load(filepath.Join(dir, "Corefile")); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestImportsWork(t *testing.T) {
	dir := folder(t, map[string]string{
		"Corefile":    "(s) {\nhold 5m\n}\n" + root + "import s\nimport conf/*.conf\n}\nimport zone\n",
		"conf/a.conf": "mark 0x80\nimport ../deeper\n", "conf/b.conf": "failclosed\n", "deeper": "search a.test\n",
		"zone": "a.test {\nforward . 192.0.2.2\n}\n",
	})
	c, err := Load(filepath.Join(dir, "Corefile"))
	fatal.If(t, err)
	if c.Hold != 5*time.Minute || c.Mark != 0x80 || !c.FailClosed || len(c.Search) != 1 || len(c.Zones) != 2 {
		t.Errorf("%+v", c)
	}
}

// TestSourceIsTheTokensOfItsFiles: a change of a token in any of its files is another
// source; comments, and files beside them, do not matter.
func TestSourceIsTheTokensOfItsFiles(t *testing.T) {
	dir := folder(t, map[string]string{"Corefile": root + "import conf/*.conf\nimport more\n}\n", "conf/a.conf": "hold 5m\n", "more": "", "audit.log": ""})
	at := func(name string) string { return filepath.Join(dir, name) }
	first := Read(at("Corefile"))
	same := func(want bool, what string) {
		t.Helper()
		diff.Equal(t, want, first.Same(Read(at("Corefile"))), what, "same")
	}
	write := func(name, text string) {
		t.Helper()
		fatal.If(t, os.WriteFile(at(name), []byte(text), 0o600))
	}
	same(true, "untouched")
	write("audit.log", "x")
	same(true, "another file")
	write("conf/a.conf", "hold 6m\n")
	same(false, "an imported file")
	write("conf/a.conf", "hold 5m # minutes\n")
	same(true, "a comment")
	write("conf/b.conf", "failclosed\n")
	same(false, "one file more")
	fatal.If(t, os.Remove(at("conf/b.conf")))
	same(true, "as it was")
	fatal.If(t, os.Remove(at("Corefile")))
	same(false, "gone")
}
