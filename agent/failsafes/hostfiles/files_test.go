package hostfiles

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/namegate/namegate/policy/failsafe"
	"github.com/namegate/namegate/testkit/fatal"
)

// host returns the root of a host with files; a text "-> TARGET" is a link.
func host(files map[string]string) Root {
	all := fstest.MapFS{}
	for name, text := range files {
		f := &fstest.MapFile{Data: []byte(text), Mode: 0o644}
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			f = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
		}
		all[strings.TrimPrefix(name, "/")] = f
	}
	return New(all)
}

// with returns the files of both.
func with(a map[string]string, more ...string) map[string]string {
	all := map[string]string{}
	for name, text := range a {
		all[name] = text
	}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

// lines returns targets as "HOST PORTS".
func lines(targets []failsafe.Target) (out []string) {
	for _, t := range targets {
		out = append(out, fmt.Sprintf("%s %s/%d", t.Host, t.Ports.Protocol, t.Ports.First))
	}
	return out
}

func equal(t *testing.T, name string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", name, got, want)
	}
}

// TestLinks: links lead to files inside the root alone, and loops end.
func TestLinks(t *testing.T) {
	r := host(map[string]string{
		"/run/systemd/resolve/stub-resolv.conf": "stub", "/etc/resolv.conf": "-> ../run/systemd/resolve/stub-resolv.conf",
		"/etc/absolute": "-> /run/systemd/resolve/stub-resolv.conf", "/var/run": "-> /run", "/etc/twice": "-> /var/run/systemd/resolve/stub-resolv.conf",
		"/etc/above": "-> ../../../../run/systemd/resolve/stub-resolv.conf", "/etc/loop": "-> loop", "/etc/dangling": "-> nowhere", "/etc/folder/file": "x",
	})
	for _, name := range []string{"/run/systemd/resolve/stub-resolv.conf", "/etc/resolv.conf", "/etc/absolute", "/etc/twice", "/etc/above", "etc/../etc/resolv.conf"} {
		if text, err := r.read(name); text != "stub" || err != nil {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	for _, name := range []string{"/etc/dangling", "/etc/none", "/none/none", "/etc/folder", "/etc/folder/file/below"} {
		if text, there, err := r.optional(name); there || err != nil {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if _, there, err := r.optional("/etc/loop"); there || err == nil || !strings.Contains(err.Error(), "/etc/loop leads through more than 40 links") {
		t.Errorf("a loop: %v", err)
	}
}

// TestRealFiles: an absolute link of a real folder leads into the folder, and files that
// cannot be read whole are errors.
func TestRealFiles(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		fatal.If(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		fatal.If(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	write("run/x", "inside")
	write("etc/big", strings.Repeat("x", maxBytes+1))
	fatal.If(t, os.Symlink("/run/x", filepath.Join(root, "etc/link")))
	r := New(os.DirFS(root))
	if text, err := r.read("/etc/link"); text != "inside" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := r.read("/etc/big"); err == nil || !strings.Contains(err.Error(), "/etc/big has more than 1024 KiB") {
		t.Errorf("a big file: %v", err)
	}
	if _, _, err := r.optional("/run/x/below"); err != nil {
		t.Errorf("below a file: %v", err)
	}
	f, err := os.Open(filepath.Join(root, "run/x"))
	fatal.If(t, err)
	defer f.Close()
	if replaced(f) {
		t.Error("a file counts as replaced")
	}
	write("run/y", "later")
	fatal.If(t, os.Rename(filepath.Join(root, "run/y"), filepath.Join(root, "run/x")))
	if !replaced(f) {
		t.Error("the file behind a mount was renamed over, and does not count as replaced")
	}
}

func TestSettings(t *testing.T) {
	r := host(map[string]string{
		"/etc/systemd/x.conf":                       "# comment\n[A]\nK = 1 \\\n# between\n  2\n; no\n[B]\nK=9\n",
		"/usr/lib/systemd/x.conf":                   "[A]\nK=hidden\n",
		"/usr/lib/systemd/x.conf.d/10-a.conf":       "[A]\nK=hidden\n",
		"/etc/systemd/x.conf.d/10-a.conf":           "[A]\nK=3\n",
		"/run/systemd/x.conf.d/20-reset.conf":       "[A]\nK=\nK=4\n",
		"/etc/systemd/x.conf.d/20-no.conf.disabled": "[A]\nK=hidden\n",
	})
	settings, err := r.systemd("x.conf")
	fatal.If(t, err)
	equal(t, "list", listOf(settings, "A", "K"), "4")
	equal(t, "main and drop-in", listOf(settings[:2], "A", "K"), "1", "2")
	if got := lastOf(settings, "B", "K"); got != "9" {
		t.Errorf("the last is %q", got)
	}
	equal(t, "words", splitWords(`a "b c"  'd "e' f\ g "" h"i j"k`), "a", "b c", `d "e`, "f g", "", "hi jk")
}
