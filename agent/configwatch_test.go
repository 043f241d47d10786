package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/fatal"
)

const good = ". {\nforward . 192.0.2.53\n"

// bench is a configWatch whose clock the test moves.
type bench struct {
	*configWatch
	t       *testing.T
	dir     string
	log     bytes.Buffer
	applied []*corefile.Config
	timers  map[time.Duration]chan time.Time
	events  chan fsnotify.Event
	watched chan bool // one for each reading
	ended   chan struct{}
}

func newBench(t *testing.T, text string) *bench {
	b := &bench{t: t, dir: t.TempDir(), timers: map[time.Duration]chan time.Time{}, events: make(chan fsnotify.Event),
		watched: make(chan bool, 100), ended: make(chan struct{})}
	for _, d := range []time.Duration{0, configQuiet, configMaxDelay, configPoll} {
		b.timers[d] = make(chan time.Time)
	}
	b.write("Corefile", text)
	path := filepath.Join(b.dir, "Corefile")
	b.configWatch = &configWatch{path: path, last: corefile.Read(path), log: slog.New(slog.NewTextHandler(&b.log, nil)),
		apply: func(c *corefile.Config) []string { b.applied = append(b.applied, c); return nil },
		after: func(d time.Duration) <-chan time.Time { return b.timers[d] }}
	return b
}

// write replaces a file in one step, so that no reader sees a half of it.
func (b *bench) write(name, text string) {
	b.t.Helper()
	whole := filepath.Join(b.t.TempDir(), "whole")
	fatal.If(b.t, os.WriteFile(whole, []byte(text), 0o600))
	fatal.If(b.t, os.Rename(whole, filepath.Join(b.dir, name)))
}

// start runs it; the result ends it, after which its results can be read.
func (b *bench) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(b.ended)
		b.follow(ctx, b.events, nil, func() { b.watched <- true })
	}()
	return func() { cancel(); <-b.ended }
}

func (b *bench) change(name string) {
	b.events <- fsnotify.Event{Name: filepath.Join(b.dir, name), Op: fsnotify.Write}
}

// pass lets a time pass and waits for what follows from it: the loop takes the
// next event after that.
func (b *bench) pass(d time.Duration) {
	b.timers[d] <- time.Time{}
	b.change("audit.log")
}

func (b *bench) holds(want ...time.Duration) {
	b.t.Helper()
	var got []time.Duration
	for _, c := range b.applied {
		got = append(got, c.Hold)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("applied %v, want %v; log: %s", got, want, b.log.String())
	}
}

// TestChangeBeforeTheWatchIsSeen: a change between the load and the watch.
func TestChangeBeforeTheWatchIsSeen(t *testing.T) {
	b := newBench(t, good+"}\n")
	b.write("Corefile", good+"hold 5m\n}\n")
	stop := b.start()
	b.pass(0)
	stop()
	b.holds(5 * time.Minute)
}

func TestImportedFileIsApplied(t *testing.T) {
	b := newBench(t, good+"import *.conf\n}\n")
	stop := b.start()
	b.pass(0)
	b.write("a.conf", "hold 5m\n")
	b.change("a.conf")
	b.pass(configQuiet)
	b.write("a.conf", "hold 6m\n")
	b.change("..data") // as Kubernetes swaps a folder
	b.pass(configQuiet)
	b.write("a.conf", "hold 7m\n")
	b.pass(configPoll) // no change was seen
	b.change("Corefile")
	b.pass(configQuiet) // the same text
	stop()
	b.holds(5*time.Minute, 6*time.Minute, 7*time.Minute)
}

// TestSteadyWritesDoNotStarve: neither a log in the same folder nor a file that
// is written without a pause keeps a change from being applied.
func TestSteadyWritesDoNotStarve(t *testing.T) {
	b := newBench(t, good+"}\n")
	asked := map[time.Duration]int{}
	after := b.after
	b.after = func(d time.Duration) <-chan time.Time { asked[d]++; return after(d) }
	stop := b.start()
	b.pass(0)
	for range 20 {
		b.change("audit.log")
	}
	b.write("Corefile", good+"hold 5m\n}\n")
	for range 20 {
		b.change("Corefile")
	}
	b.pass(configMaxDelay)
	b.change("Corefile")
	stop()
	b.holds(5 * time.Minute)
	if asked[configQuiet] != 21 || asked[configMaxDelay] != 2 || len(b.watched) != 2 {
		t.Errorf("waited %v, read %d times", asked, len(b.watched))
	}
}

// TestInvalidCorefileIsRefusedAgain: said once, and the next good one is applied.
func TestInvalidCorefileIsRefusedAgain(t *testing.T) {
	b := newBench(t, good+"}\n")
	stop := b.start()
	b.pass(0)
	for _, text := range []string{good + "import Corefile\n}\n", good + "import Corefile\n}\n", good + "hold x\n}\n", good + "hold 6m\n}\n"} {
		b.write("Corefile", text)
		b.change("Corefile")
		b.pass(configQuiet)
	}
	stop()
	b.holds(6 * time.Minute)
	if log := b.log.String(); strings.Count(log, "imports itself in the end") != 1 || strings.Count(log, "Corefile:3: hold") != 1 {
		t.Errorf("log %s", log)
	}
}

// TestInvalidCacheKeepsTheRunningConfiguration: the cache follows the last valid file.
func TestInvalidCacheKeepsTheRunningConfiguration(t *testing.T) {
	b := newBench(t, good+"}\n")
	stop := b.start()
	b.pass(0)
	for _, line := range []string{"cache 5m", "cache {\nsuccess 5000\n}", "cache 1m {\nmin_ttl 2m\n}", "cache 10\nttl 1h 5s", "cache 10\nfollow maybe", "", "cache 10"} {
		b.write("Corefile", good+line+"\n}\n")
		b.change("Corefile")
		b.pass(configQuiet)
	}
	stop()
	var kept []time.Duration
	for _, c := range b.applied {
		if cache := c.Zones[0].Cache; cache != nil {
			kept = append(kept, cache.MaxTTL)
		} else {
			kept = append(kept, 0)
		}
	}
	if got, want := fmt.Sprint(kept), fmt.Sprint([]time.Duration{5 * time.Minute, 0, 10 * time.Second}); got != want {
		t.Errorf("applied %s, want %s; log: %s", got, want, b.log.String())
	}
	for _, refused := range []string{"Corefile:4: cache: success: is CoreDNS's", "Corefile:3: cache: min_ttl 2m is above", "Corefile:4: ttl: ", "Corefile:4: follow: "} {
		if strings.Count(b.log.String(), refused) != 1 {
			t.Errorf("%q is not said once in %s", refused, b.log.String())
		}
	}
}

// TestWatchSeesFolders: with the kernel's events, in the folder of an import too.
func TestWatchSeesFolders(t *testing.T) {
	b := newBench(t, good+"import conf/*\n}\n")
	fatal.If(t, os.Mkdir(filepath.Join(b.dir, "conf"), 0o700))
	b.after = time.After
	applied := make(chan time.Duration, 10)
	b.apply = func(c *corefile.Config) []string { applied <- c.Hold; return nil }
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- b.run(ctx) }()
	b.write("conf/a", "hold 5m\n")
	if got := <-applied; got != 5*time.Minute {
		t.Errorf("applied %v", got)
	}
	b.write("conf/a", "hold 6m\n")
	if got := <-applied; got != 6*time.Minute {
		t.Errorf("applied %v", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestEndWaitsForNoParse: a reading that hangs does not hold up the agent's end.
func TestEndWaitsForNoParse(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	gate, began := make(chan struct{}), make(chan struct{})
	defer close(gate)
	go func() { <-began; cancel() }()
	if _, err := await(ctx, func() int { close(began); <-gate; return 1 }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if v, err := await(context.Background(), func() int { return 7 }); v != 7 || err != nil {
		t.Errorf("%d, %v", v, err)
	}
}
