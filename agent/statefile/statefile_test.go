package statefile

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestStates: a state that was written is read; a file that is not there, too large or no state is an error.
func TestStates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	var got map[string]int
	diff.Is(t, fs.ErrNotExist, Read(path, &got), "without a file")
	for _, n := range []int{1, 2} {
		fatal.If(t, Write(path, map[string]int{"n": n}))
		if err := Read(path, &got); err != nil || got["n"] != n {
			t.Errorf("%v, %v, want %d", got, err, n)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for _, text := range []string{"", "{", `{"n":"` + strings.Repeat("x", maxSize) + `"}`} {
		fatal.If(t, os.WriteFile(path, []byte(text), 0o600))
		if err := Read(path, &got); err == nil {
			t.Errorf("a file of %d bytes is read", len(text))
		}
	}
	if err := Write(filepath.Join(path, "below", "a", "file"), 1); err == nil {
		t.Error("written below a file")
	}
	diff.Fails(t, path, Write(path, func() {}), "what has no JSON")
}

// TestTwoWriters: an agent and its successor write the file at once, and it never has a part of a state.
func TestTwoWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	long := map[string]string{"text": strings.Repeat("x", 1<<16)}
	fatal.If(t, Write(path, long))
	var writers sync.WaitGroup
	for _, state := range []map[string]string{long, {"text": "x"}} {
		writers.Go(func() {
			for range 200 {
				if err := Write(path, state); err != nil {
					t.Error(err)
				}
			}
		})
	}
	written := make(chan struct{})
	go func() { defer close(written); writers.Wait() }()
	for done := false; !done; {
		select {
		case <-written:
			done = true
		default:
		}
		var got map[string]string
		if err := Read(path, &got); err != nil {
			t.Error(err)
		}
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if fatal.If(t, err); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}
