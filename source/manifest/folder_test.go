package manifest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestFolderReadsItsManifests(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b.yaml", other("b"))
	write(t, dir, "a.YML", other("a"))
	write(t, dir, "c.json", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x","labels":{"team":"t","kubernetes.io/metadata.name":"lie"}}}`)
	write(t, dir, "notes.txt", "not read")
	write(t, dir, "d.yaml~", other("backup"))
	fatal.If(t, os.WriteFile(filepath.Join(dir, ".hidden.yaml"), []byte(other("hidden")), 0o600))
	fatal.If(t, os.MkdirAll(filepath.Join(dir, "sub.yaml"), 0o700))
	write(t, filepath.Join(dir, "sub.yaml"), "z.yaml", other("below"))
	f := scanned(t, dir)
	f.scan(t.Context(), at(0))
	s := f.state()
	diff.Equal(t, "shop/a shop/b", policyNames(s), "policies")
	if len(s.FileErrors)+len(s.Problems) > 0 {
		t.Errorf("errors %v, problems %v", s.FileErrors, s.Problems)
	}
	want := map[string]map[string]string{
		"x":    {"team": "t", "kubernetes.io/metadata.name": "x"},
		"shop": {"kubernetes.io/metadata.name": "shop"}, // implied
	}
	diff.Error(t, want, s.Input.Namespaces)
}

// TestLastValidContentStays goes through the life of one file. Each step has the policies
// in force after it, and the error.
func TestLastValidContentStays(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "p.yaml")
	f := scanned(t, dir)
	for i, step := range []struct {
		text, policies, err string
		since               int
		changed             bool
	}{
		{text: "kind: [", err: "line 1", since: 0, changed: true},
		{text: other("one"), policies: "shop/one", changed: true},
		{text: other("one"), policies: "shop/one"},
		{text: other("one") + "kind: [", policies: "shop/one", err: "line 10", since: 3, changed: true},
		{text: other("one") + "kind: [", policies: "shop/one", err: "line 10", since: 3},
		{text: strings.Replace(allowOut, "spec", "spce", 1), policies: "shop/one", err: `unknown field "spce"`, since: 3, changed: true},
		{text: "", policies: "shop/one", err: "delete the file to remove it", since: 3, changed: true},
		{text: "# nothing\n", policies: "shop/one", err: "delete the file to remove it", since: 3},
		{text: other("two"), policies: "shop/two", changed: true},
		{text: "gone", changed: true},
		{text: "# nothing\n", changed: true},
	} {
		if step.text == "gone" {
			fatal.If(t, os.Remove(path))
		} else {
			write(t, dir, "p.yaml", step.text)
		}
		diff.Equal(t, step.changed, f.scan(t.Context(), at(i)), "step", i, "changed")
		s := f.state()
		diff.Equal(t, step.policies, policyNames(s), "step", i, "policies")
		switch {
		case step.err == "" && len(s.FileErrors) > 0:
			t.Errorf("step %d: %v", i, s.FileErrors)
		case step.err == "":
		case len(s.FileErrors) != 1:
			t.Errorf("step %d: %d errors", i, len(s.FileErrors))
		default:
			e := s.FileErrors[0]
			if e.File != path || !strings.Contains(e.Error(), step.err) || !e.Since.Equal(at(step.since)) {
				t.Errorf("step %d: %v since %v, want %q since %v", i, e, e.Since, step.err, at(step.since))
			}
		}
	}
}

func TestFolderVanishes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	fatal.If(t, os.Mkdir(dir, 0o700))
	write(t, dir, "p.yaml", other("one"))
	f := scanned(t, dir)
	f.scan(t.Context(), at(0))
	fatal.If(t, os.RemoveAll(dir))
	if !f.scan(t.Context(), at(1)) || f.scan(t.Context(), at(2)) {
		t.Error("the folder's end is not news once")
	}
	s := f.state()
	if policyNames(s) != "shop/one" || len(s.FileErrors) != 1 || s.FileErrors[0].File != dir || !s.FileErrors[0].Since.Equal(at(1)) {
		t.Errorf("policies %q, errors %v", policyNames(s), s.FileErrors)
	}
	fatal.If(t, os.Mkdir(dir, 0o700))
	write(t, dir, "q.yaml", other("two"))
	if !f.scan(t.Context(), at(3)) {
		t.Error("the folder's return is no news")
	}
	if s := f.state(); policyNames(s) != "shop/two" || len(s.FileErrors) != 0 {
		t.Errorf("policies %q, errors %v", policyNames(s), s.FileErrors)
	}
}

func TestLinks(t *testing.T) {
	dir, target := t.TempDir(), t.TempDir()
	link := filepath.Join(dir, "p.yaml")
	write(t, target, "real", other("one"))
	fatal.If(t, os.Symlink(filepath.Join(target, "real"), link))
	f := scanned(t, dir)
	f.scan(t.Context(), at(0))
	fatal.If(t, os.Remove(filepath.Join(target, "real")))
	f.scan(t.Context(), at(1))
	s := f.state()
	if policyNames(s) != "shop/one" || len(s.FileErrors) != 1 || s.FileErrors[0].Reason != "the link leads nowhere" {
		t.Errorf("policies %q, errors %v", policyNames(s), s.FileErrors)
	}
	fatal.If(t, os.Remove(link))
	fatal.If(t, os.Symlink(os.DevNull, link))
	f.scan(t.Context(), at(2))
	if s := f.state(); policyNames(s) != "shop/one" || !strings.Contains(s.FileErrors[0].Reason, "not a regular file") {
		t.Errorf("policies %q, errors %v", policyNames(s), s.FileErrors)
	}
}

func TestDuplicatesAndOtherKinds(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", strings.Replace(allowOut, "www", "first", 1))
	write(t, dir, "b.yaml", strings.Replace(allowOut, "www", "second", 1)+"---\n"+podWeb+"---\n"+podWeb)
	write(t, dir, "c.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: x}\n")
	f := scanned(t, dir)
	f.scan(t.Context(), at(0))
	s := f.state()
	if len(s.Input.Policies) != 1 || *s.Input.Policies[0].Spec.Egress[0].Matches[0].Name != "first.example.org" || len(s.Input.Pods) != 1 {
		t.Errorf("policies %v, pods %v", s.Input.Policies, s.Input.Pods)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	want := []policy.Problem{
		{Object: "policy shop/allow-out", Reason: ReasonDuplicate, Path: in("b.yaml") + ": document 1 (line 1)",
			Message: "the one in " + in("a.yaml") + ": document 1 (line 1) counts; remove or rename this one"},
		{Object: "pod shop/web", Reason: ReasonDuplicate, Path: in("b.yaml") + ": document 3 (line 17)",
			Message: "the one in " + in("b.yaml") + ": document 2 (line 11) counts; remove or rename this one"},
		{Object: "file " + in("c.yaml"), Reason: ReasonIgnored, Path: "document 1 (line 1)", Message: "kind Service of v1 is not read from files"},
	}
	diff.Error(t, want, s.Problems)
	fatal.If(t, os.Remove(in("a.yaml")))
	f.scan(t.Context(), at(1))
	if s := f.state(); *s.Input.Policies[0].Spec.Egress[0].Matches[0].Name != "second.example.org" {
		t.Error("the second of two does not take over when the first is gone")
	}
}

// TestUnchangedFilesAreShared: what did not change keeps its memory, by which the
// compiler sees quickly that it did not.
func TestUnchangedFilesAreShared(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", other("a"))
	f := scanned(t, dir)
	f.scan(t.Context(), at(0))
	before := f.state().Input.Policies[0].Spec.Egress
	write(t, dir, "b.yaml", other("b"))
	f.scan(t.Context(), at(1))
	if after := f.state().Input.Policies[0].Spec.Egress; &before[0] != &after[0] {
		t.Error("a file was decoded again although it did not change")
	}
}

// aWatch reports what the test sends.
func aWatch() *fsnotify.Watcher {
	return &fsnotify.Watcher{Events: make(chan fsnotify.Event), Errors: make(chan error)}
}

// TestWait: when a wait for changes ends. Each change restarts the quiet time, up to the
// maximum, and neighbours of the folder are no change.
func TestWait(t *testing.T) {
	const step = QuietDelay - time.Millisecond
	for name, c := range map[string]struct {
		paths []string // one each step
		want  time.Duration
	}{
		"nothing":                 {nil, RescanPeriod},
		"a change":                {[]string{"/d/a.yaml"}, step + QuietDelay},
		"a burst":                 {[]string{"/d/a.yaml", "/d", ""}, 3*step + QuietDelay},
		"a burst without end":     {make([]string, 100), step + MostDelay},
		"neighbours":              {[]string{"/other", "/d2/a.yaml", "/d2"}, RescanPeriod},
		"neighbours and a change": {[]string{"/other", "/d/a.yaml", "/d2"}, 2*step + QuietDelay},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, began := aWatch(), time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					for _, path := range c.paths {
						select {
						case <-time.After(step):
							if path == "" {
								w.Errors <- fsnotify.ErrEventOverflow
							} else {
								w.Events <- fsnotify.Event{Name: path}
							}
						case <-ctx.Done():
							return
						}
					}
				}()
				if err := (&Source{dir: "/d"}).wait(ctx, w); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != c.want {
					t.Errorf("it took %v, want %v", took, c.want)
				}
			})
		})
	}
}

func TestWaitEnds(t *testing.T) {
	s := &Source{dir: "/d"}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.wait(ctx, aWatch()); err != nil {
		t.Errorf("at the end of the context: %v", err)
	}
	w := aWatch()
	close(w.Events)
	if err := s.wait(t.Context(), w); err == nil {
		t.Error("no error at the end of the watch")
	}
}
