package cni

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// watched is a folder of results under a Watcher.
type watched struct {
	*testing.T
	dir   string
	clock *testclock.FakeClock
	got   chan Results
	last  Results
	// log is for reading after Run alone.
	log bytes.Buffer
	end func()
}

func watch(t *testing.T, dir string) *watched {
	t.Helper()
	w := &watched{T: t, dir: dir, clock: testclock.NewFakeClock(time.Now().Add(time.Hour)), got: make(chan Results, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		New(dir, slog.New(slog.NewTextHandler(&w.log, nil)), w.clock).Run(ctx, func(r Results) { w.got <- r })
	}()
	w.end = func() {
		cancel()
		<-done
	}
	t.Cleanup(w.end)
	return w
}

// await waits until the results are those of the pods, written as UID and address.
func (w *watched) await(pods map[string]string) {
	w.Helper()
	limit := time.After(time.Minute)
	for {
		got := map[string]string{}
		for uid, s := range w.last {
			got[uid] = s.Addrs[0].String()
		}
		if maps.Equal(got, pods) {
			return
		}
		select {
		case w.last = <-w.got:
		case <-limit:
			w.Fatalf("results %v, want %v", got, pods)
		}
	}
}

func (w *watched) write(name, text string) {
	w.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

func (w *watched) remove(name string) {
	w.Helper()
	if err := os.RemoveAll(filepath.Join(w.dir, name)); err != nil {
		w.Fatal(err)
	}
}

func TestWatch(t *testing.T) {
	dir := t.TempDir()
	fatal.If(t, os.WriteFile(filepath.Join(dir, "pods-c0-eth0"), []byte(aResult("u0", "10.0.0.9/24")), 0o600))
	w := watch(t, dir)
	w.await(map[string]string{"u0": "10.0.0.9"})

	w.write("pods-c1-eth0", aResult("u1", "10.0.0.1/24"))
	w.await(map[string]string{"u0": "10.0.0.9", "u1": "10.0.0.1"})

	// A file that is written in two steps counts when it is whole.
	whole := aResult("u2", "10.0.0.2/24")
	w.write("pods-c2-eth0", whole[:50])
	f, err := os.OpenFile(filepath.Join(dir, "pods-c2-eth0"), os.O_APPEND|os.O_WRONLY, 0)
	fatal.If(t, err)
	_, err = f.WriteString(whole[50:])
	if e := f.Close(); err != nil || e != nil {
		t.Fatal(err, e)
	}
	w.await(map[string]string{"u0": "10.0.0.9", "u1": "10.0.0.1", "u2": "10.0.0.2"})

	w.remove("pods-c0-eth0")
	w.remove("pods-c2-eth0")
	w.await(map[string]string{"u1": "10.0.0.1"})
}

// A pod's sandbox may be made again while the old one is not removed yet.
func TestLastSandboxCounts(t *testing.T) {
	w := watch(t, t.TempDir())
	w.write("pods-old-eth0", aResult("u1", "10.0.0.1/24"))
	old := time.Now().Add(-time.Second)
	fatal.If(t, os.Chtimes(filepath.Join(w.dir, "pods-old-eth0"), old, old))
	w.await(map[string]string{"u1": "10.0.0.1"})
	w.write("pods-new-eth0", aResult("u1", "10.0.0.2/24"))
	w.await(map[string]string{"u1": "10.0.0.2"})
	w.remove("pods-old-eth0")
	w.write("pods-c2-eth0", aResult("u2", "10.0.0.3/24"))
	w.await(map[string]string{"u1": "10.0.0.2", "u2": "10.0.0.3"})
}

// TestClockSetBack: a result of before the clock was set back does not count as the last sandbox, even
// when the clock has passed its time.
func TestClockSetBack(t *testing.T) {
	w := watch(t, t.TempDir())
	now := w.clock.Now()
	write := func(name, text string, at time.Time) {
		path := filepath.Join(w.dir, name)
		fatal.If(t, errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Chtimes(path+".new", at, at), os.Rename(path+".new", path)))
	}
	write("pods-old-eth0", aResult("u1", "10.0.0.1/24"), now)
	w.await(map[string]string{"u1": "10.0.0.1"})
	w.clock.SetTime(now.Add(-time.Hour))
	write("pods-new-eth0", aResult("u1", "10.0.0.2/24"), now.Add(-time.Hour))
	w.await(map[string]string{"u1": "10.0.0.2"})
	w.clock.SetTime(now.Add(time.Hour))
	write("pods-c2-eth0", aResult("u2", "10.0.0.3/24"), now.Add(time.Hour))
	w.await(map[string]string{"u1": "10.0.0.2", "u2": "10.0.0.3"})
	w.remove("pods-new-eth0")
	w.await(map[string]string{"u1": "10.0.0.1", "u2": "10.0.0.3"})
	diff.Equal(t, 0, w.last["u1"].Since, "the number of the old result")
}

// A folder that is missing, or goes, is watched when it is there.
func TestFolderComesLater(t *testing.T) {
	w := watch(t, filepath.Join(t.TempDir(), "results")+"/") // events have the path without the slash
	unwatched := func() {
		t.Helper()
		fatal.Await(t, "another attempt", w.clock.HasWaiters)
	}
	for range 2 {
		unwatched()
		fatal.If(t, os.Mkdir(w.dir, 0o700))
		w.write("pods-c1-eth0", aResult("u1", "10.0.0.1/24"))
		w.clock.Step(Retry)
		w.await(map[string]string{"u1": "10.0.0.1"})
		w.remove("")
		w.await(nil)
	}
	unwatched()
	w.end()
	if n := strings.Count(w.log.String(), "cannot be watched"); n != 3 {
		t.Errorf("%d warnings, want one each time:\n%s", n, w.log.String())
	}
}

// Files of one tick of the file system's clock have the same time.
func TestRewrittenInOneTick(t *testing.T) {
	w := New(t.TempDir(), slog.New(slog.DiscardHandler), testclock.NewFakeClock(time.Unix(1_700_000_000, 0)))
	written := time.Unix(1_600_000_000, 0)
	w.booted = func() (time.Time, error) { return written, nil }
	for _, c := range []struct {
		name, text string
		news       bool
		want       []string
	}{
		{"new", aResult("u1", "10.0.0.1/24"), true, []string{"10.0.0.1"}},
		{"the same", aResult("u1", "10.0.0.1/24"), false, []string{"10.0.0.1"}},
		{"another address", aResult("u1", "10.0.0.2/24"), true, []string{"10.0.0.2"}},
		{"half written", aResult("u1", "10.0.0.2/24")[:50], false, []string{"10.0.0.2"}},
		{"no address", aResult("u1"), true, nil},
		{"no address still", aResult("u1"), false, nil},
	} {
		path := filepath.Join(w.dir, "pods-c1-eth0")
		fatal.If(t, errors.Join(os.WriteFile(path, []byte(c.text), 0o600), os.Chtimes(path, written, written)))
		diff.Equal(t, c.news, w.read("pods-c1-eth0"), c.name, "news")
		diff.Error(t, parsed(c.want), w.results()["u1"].Addrs, c.name)
	}
}

// Results that were passed out do not change.
func TestResultsAreValues(t *testing.T) {
	w := watch(t, t.TempDir())
	w.write("pods-c1-eth0", aResult("u1", "10.0.0.1/24"))
	w.await(map[string]string{"u1": "10.0.0.1"})
	before := w.last
	w.write("pods-c1-eth0", aResult("u1", "10.0.0.2/24"))
	w.await(map[string]string{"u1": "10.0.0.2"})
	diff.Error(t, parsed([]string{"10.0.0.1"}), before["u1"].Addrs, "earlier results now")
}

// TestResultsOfBeforeTheBoot: a runtime that did not stop in order leaves results of sandboxes that
// ended with the machine.
func TestResultsOfBeforeTheBoot(t *testing.T) {
	w := New(t.TempDir(), slog.New(slog.DiscardHandler), testclock.NewFakeClock(time.Unix(1_700_000_000, 0)))
	boot := time.Unix(1_600_000_000, 0)
	w.booted = func() (time.Time, error) { return boot, nil }
	for name, c := range map[string]struct {
		text string
		at   time.Time
	}{
		"pods-c0-eth0": {aResult("u0", "10.0.0.9/24"), boot.Add(-time.Second)},
		"pods-c1-eth0": {aResult("u1", "10.0.0.1/24"), boot},
	} {
		path := filepath.Join(w.dir, name)
		fatal.If(t, errors.Join(os.WriteFile(path, []byte(c.text), 0o600), os.Chtimes(path, c.at, c.at)))
		w.read(name)
	}
	got := w.results()
	if len(got) != 1 || !got.Has(parsed([]string{"10.0.0.1"})[0]) || got.Has(parsed([]string{"10.0.0.9"})[0]) {
		t.Errorf("results %v, want those since the boot", got)
	}
}
