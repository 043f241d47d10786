package audit

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/testkit/fatal"
)

// still is a clock that moves when told.
type still struct{ at time.Time }

func (s *still) now() time.Time { return s.at }

func newFile(t *testing.T, size int64, keep int) (*file, *still, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")
	clock := &still{noon}
	f, err := openFile(Options{Path: path, Size: size, Keep: keep, Now: clock.now})
	fatal.If(t, err)
	t.Cleanup(func() { _ = f.close() })
	return f, clock, path
}

func put(t *testing.T, f *file, line string) {
	t.Helper()
	if _, err := f.write([]byte(line + "\n")); err != nil {
		t.Fatal(err)
	}
}

// holds compares the content of the files: "-" is no file.
func holds(t *testing.T, path string, want ...string) {
	t.Helper()
	for i, w := range want {
		p := path
		if i > 0 {
			p += "." + string(rune('0'+i))
		}
		b, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) {
			b = []byte("-")
		}
		if got := strings.ReplaceAll(string(b), "\n", " "); strings.TrimSpace(got) != w {
			t.Errorf("%s holds %q, want %q", filepath.Base(p), got, w)
		}
	}
}

func TestFileRotates(t *testing.T) {
	f, _, path := newFile(t, 10, 2)
	for _, line := range []string{"aaaa", "bbbb", "cccc", "dddd", "eeee", "ffff", "gggg"} {
		put(t, f, line)
	}
	holds(t, path, "gggg", "eeee ffff", "cccc dddd", "-")
}

func TestFileRotatesWithoutKeeping(t *testing.T) {
	f, _, path := newFile(t, 10, 0)
	for _, line := range []string{"aaaa", "bbbb", "cccc"} {
		put(t, f, line)
	}
	holds(t, path, "cccc", "-")
}

func TestFileNeverRotatesWithoutASize(t *testing.T) {
	f, _, path := newFile(t, 0, 2)
	for range 3 {
		put(t, f, "aaaa")
	}
	holds(t, path, "aaaa aaaa aaaa", "-")
}

func TestFileIsAppended(t *testing.T) {
	f, _, path := newFile(t, 10, 2)
	put(t, f, "aaaa")
	g, err := openFile(Options{Path: path, Size: 10, Keep: 2, Now: time.Now})
	fatal.If(t, err)
	defer g.close()
	put(t, g, "bbbb")
	put(t, g, "cccc")
	holds(t, path, "cccc", "aaaa bbbb")
}

func TestFailedRotationKeepsWriting(t *testing.T) {
	f, clock, path := newFile(t, 10, 1)
	fatal.If(t, os.MkdirAll(filepath.Join(path+".1", "in the way"), 0o755))
	for _, line := range []string{"aaaa", "bbbb", "cccc"} {
		put(t, f, line)
	}
	holds(t, path, "aaaa bbbb cccc")
	fatal.If(t, os.RemoveAll(path+".1"))
	put(t, f, "dddd") // too early for another try
	holds(t, path, "aaaa bbbb cccc dddd", "-")
	clock.at = clock.at.Add(lookEvery)
	put(t, f, "eeee")
	holds(t, path, "eeee", "aaaa bbbb cccc dddd")
}

func TestRenamedFileIsNoticed(t *testing.T) {
	f, clock, path := newFile(t, 0, 0)
	put(t, f, "aaaa")
	fatal.If(t, os.Rename(path, path+".1"))
	put(t, f, "bbbb")
	clock.at = clock.at.Add(lookEvery)
	put(t, f, "cccc")
	holds(t, path, "cccc", "aaaa bbbb")
}

func TestMissingFolderKeepsTheOpenFile(t *testing.T) {
	f, clock, path := newFile(t, 10, 2)
	put(t, f, "aaaa")
	moved := filepath.Dir(path) + "-moved"
	fatal.If(t, os.Rename(filepath.Dir(path), moved))
	defer os.RemoveAll(moved)
	for range 3 {
		clock.at = clock.at.Add(lookEvery)
		put(t, f, "bbbb")
	}
	holds(t, filepath.Join(moved, "audit.log"), "aaaa bbbb bbbb bbbb")
	fatal.If(t, os.Rename(moved, filepath.Dir(path)))
	clock.at = clock.at.Add(lookEvery)
	put(t, f, "cccc")
	holds(t, path, "cccc", "aaaa bbbb bbbb bbbb", "-")
}

// TestLineThatAnotherAgentLeftCut: the other was killed after this one had opened the file.
func TestLineThatAnotherAgentLeftCut(t *testing.T) {
	f, clock, path := newFile(t, 0, 0)
	put(t, f, "mine")
	other, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	fatal.If(t, err)
	defer other.Close()
	if _, err := other.WriteString("half a li"); err != nil {
		t.Fatal(err)
	}
	clock.at = clock.at.Add(lookEvery)
	put(t, f, "whole")
	holds(t, path, "mine half a li whole")
	if text, err := os.ReadFile(path); err != nil || string(text) != "mine\nhalf a li\nwhole\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestTwoAgentsRotateOnce: two agents with one file, and one lets go of no line of the
// other's by moving the file twice.
func TestTwoAgentsRotateOnce(t *testing.T) {
	f, _, path := newFile(t, 12, 2)
	g, err := openFile(Options{Path: path, Size: 12, Keep: 2, Now: time.Now})
	fatal.If(t, err)
	defer g.close()
	put(t, f, "aaaa")
	put(t, g, "bbbb")
	put(t, f, "cccc") // moves it
	put(t, g, "dddd") // finds it moved
	holds(t, path, "cccc dddd", "aaaa bbbb", "-")
}

// TestAgentsWriteCompleteLines: two agents write to one file at a time, and neither takes
// the other's partial write for a cut line.
func TestAgentsWriteCompleteLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	const batches, lines = 300, 200
	batch := []byte(strings.Repeat(strings.Repeat("x", 600)+"\n", lines))
	var wg sync.WaitGroup
	for range 2 {
		clock := &still{noon}
		f, err := openFile(Options{Path: path, Now: clock.now})
		fatal.If(t, err)
		f.tries = math.MaxInt // a slow machine takes no lock away
		wg.Go(func() {
			defer f.close()
			for range batches {
				clock.at = clock.at.Add(lookEvery)
				if _, err := f.write(batch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	text, err := os.ReadFile(path)
	if err != nil || bytes.Contains(text, []byte("\n\n")) || bytes.Count(text, []byte("\n")) != 2*batches*lines {
		t.Errorf("%d lines, want %d; an empty one: %v; %v", bytes.Count(text, []byte("\n")), 2*batches*lines, bytes.Contains(text, []byte("\n\n")), err)
	}
}

// TestFileLockedByAnotherProcess is written all the same, and the end of the file is the
// other process's write, which may be under way: it is no cut line.
func TestFileLockedByAnotherProcess(t *testing.T) {
	f, _, path := newFile(t, 0, 0)
	other, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	fatal.If(t, err)
	defer other.Close()
	fatal.If(t, unix.Flock(int(other.Fd()), unix.LOCK_EX))
	_, err = other.WriteString("bb")
	fatal.If(t, err)
	put(t, f, "aaaa")
	holds(t, path, "bbaaaa")
	fatal.If(t, unix.Flock(int(other.Fd()), unix.LOCK_UN))
	_, err = other.WriteString("cc")
	fatal.If(t, err)
	put(t, f, "dddd")
	holds(t, path, "bbaaaa cc dddd")
}

func TestOpenLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := Open(Options{Node: "node-1", Path: path, Size: 1 << 20, Keep: 1})
	fatal.If(t, err)
	l.Write(example(t))
	closeLog(t, l)
	b, err := os.ReadFile(path)
	if err != nil || bytes.Count(b, []byte("\n")) != 1 {
		t.Errorf("%q, %v", b, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("others may read it: %v, %v", info, err)
	}
	if _, err := Open(Options{Path: filepath.Join(path, "x")}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v", err)
	}
	out, err := Open(Options{})
	fatal.If(t, err)
	closeLog(t, out)
}
