package manifest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestNewNeedsAFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "file", "")
	for path, want := range map[string]string{
		filepath.Join(dir, "nowhere"): "create it or name another one",
		filepath.Join(dir, "file"):    "is a file; name the folder that it is in",
	} {
		if _, err := New(path, "", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// running is a source that runs on the system's clock.
type running struct {
	t      *testing.T
	states chan State
}

func run(t *testing.T, dir, node string) *running {
	t.Helper()
	s, err := New(dir, node, slog.New(slog.DiscardHandler))
	fatal.If(t, err)
	r := &running{t, make(chan State, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx, func(s State) { r.states <- s }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

// until returns the first state from now on that is as wanted.
func (r *running) until(what string, wanted func(State) bool) State {
	r.t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case s := <-r.states:
			if wanted(s) {
				return s
			}
		case <-deadline:
			r.t.Fatalf("no state has %s", what)
		}
	}
}

func (r *running) untilPolicies(names string) State {
	r.t.Helper()
	return r.until("the policies "+names, func(s State) bool { return policyNames(s) == names })
}

func TestRunFollowsFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "p.yaml", other("one"))
	r := run(t, dir, "")
	r.untilPolicies("shop/one")
	write(t, dir, "q.yaml", other("two"))
	r.untilPolicies("shop/one shop/two")
	write(t, dir, "p.yaml", "kind: [")
	s := r.until("an error", func(s State) bool { return len(s.FileErrors) == 1 })
	diff.Equal(t, "shop/one shop/two", policyNames(s), "policies beside a broken file")
	fatal.If(t, os.Remove(filepath.Join(dir, "p.yaml")))
	if s := r.untilPolicies("shop/two"); len(s.FileErrors) > 0 {
		t.Errorf("errors of a deleted file: %v", s.FileErrors)
	}
}

// TestRunFollowsConfigMap does the same as the kubelet with a mounted ConfigMap: the
// files are links through ..data, which is replaced by another link.
func TestRunFollowsConfigMap(t *testing.T) {
	dir := t.TempDir()
	publish := func(version, text string) {
		fatal.If(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		write(t, filepath.Join(dir, version), "p.yaml", text)
		fatal.If(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		fatal.If(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	publish("..1", other("one"))
	fatal.If(t, os.Symlink(filepath.Join("..data", "p.yaml"), filepath.Join(dir, "p.yaml")))
	r := run(t, dir, "")
	r.untilPolicies("shop/one")
	publish("..2", other("two"))
	fatal.If(t, os.RemoveAll(filepath.Join(dir, "..1")))
	if s := r.untilPolicies("shop/two"); len(s.FileErrors) > 0 {
		t.Errorf("errors: %v", s.FileErrors)
	}
}

// TestRunFollowsTheFolder: the folder vanishes, comes back, and is replaced.
func TestRunFollowsTheFolder(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "d")
	folder := func(name, policy string) string {
		path := filepath.Join(parent, name)
		fatal.If(t, os.Mkdir(path, 0o700))
		write(t, path, "p.yaml", other(policy))
		return path
	}
	folder("d", "one")
	r := run(t, dir, "")
	r.untilPolicies("shop/one")
	fatal.If(t, os.Rename(dir, filepath.Join(parent, "away")))
	s := r.until("an error", func(s State) bool { return len(s.FileErrors) == 1 })
	if policyNames(s) != "shop/one" || s.FileErrors[0].File != dir {
		t.Errorf("policies %q, errors %v", policyNames(s), s.FileErrors)
	}
	fatal.If(t, os.Rename(folder("new", "two"), dir))
	r.untilPolicies("shop/two")
	write(t, dir, "p.yaml", other("three")) // the new folder is watched, too
	r.untilPolicies("shop/three")
}

func TestRunFollowsALinkedFolder(t *testing.T) {
	parent := t.TempDir()
	link := filepath.Join(parent, "current")
	for _, name := range []string{"one", "two"} {
		fatal.If(t, os.Mkdir(filepath.Join(parent, name), 0o700))
		write(t, filepath.Join(parent, name), "p.yaml", other(name))
	}
	fatal.If(t, os.Symlink("one", link))
	r := run(t, link, "")
	r.untilPolicies("shop/one")
	fatal.If(t, os.Symlink("two", link+"_tmp"))
	fatal.If(t, os.Rename(link+"_tmp", link))
	r.untilPolicies("shop/two")
}

func TestRunKnowsItsNode(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "p.yaml", podWeb)
	s := run(t, dir, "node-b").until("a pod", func(s State) bool { return len(s.Input.Pods) == 1 })
	diff.Equal(t, "node-a", s.Input.Pods[0].NodeName, "node")
}
