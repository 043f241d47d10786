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
	"testing/synctest"
	"time"

	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/testkit/fatal"
)

const good = ". {\nforward . 192.0.2.53\n"

// bench is a configWatch that a test polls.
type bench struct {
	*configWatch
	t       *testing.T
	dir     string
	log     bytes.Buffer
	applied []*corefile.Config
}

func newBench(t *testing.T, text string) *bench {
	b := &bench{t: t, dir: t.TempDir()}
	b.write("Corefile", text)
	path := filepath.Join(b.dir, "Corefile")
	b.configWatch = &configWatch{path: path, last: corefile.Read(path), log: slog.New(slog.NewTextHandler(&b.log, nil)),
		apply: func(c *corefile.Config) []string { b.applied = append(b.applied, c); return nil }}
	return b
}

// write replaces a file in one step, so that no reader sees a half of it.
func (b *bench) write(name, text string) {
	b.t.Helper()
	whole := filepath.Join(b.t.TempDir(), "whole")
	fatal.If(b.t, os.WriteFile(whole, []byte(text), 0o600))
	fatal.If(b.t, os.Rename(whole, filepath.Join(b.dir, name)))
}

// polls polls as often as a change needs.
func (b *bench) polls() {
	b.poll(b.t.Context())
	b.poll(b.t.Context())
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
	b.polls()
	b.holds(5 * time.Minute)
}

// TestImportedFileIsApplied: from a folder that is made later, too.
func TestImportedFileIsApplied(t *testing.T) {
	b := newBench(t, good+"import conf/*\n}\n")
	b.polls()
	fatal.If(t, os.Mkdir(filepath.Join(b.dir, "conf"), 0o700))
	for _, text := range []string{"hold 5m\n", "hold 6m\n", "hold 6m # minutes\n"} {
		b.write("conf/a", text)
		b.polls()
	}
	b.holds(5*time.Minute, 6*time.Minute)
}

// TestChangesSettle: a file that is written in several steps is applied when it is written.
func TestChangesSettle(t *testing.T) {
	b := newBench(t, good+"}\n")
	for _, minutes := range []string{"4", "5", "6"} {
		b.holds()
		b.write("Corefile", good+"hold "+minutes+"m\n}\n")
		b.poll(t.Context())
	}
	b.polls()
	b.holds(6 * time.Minute)
}

// TestSteadyWritesDoNotStarve: a Corefile that is written without a pause is applied.
func TestSteadyWritesDoNotStarve(t *testing.T) {
	b := newBench(t, good+"}\n")
	for minutes := range 2 * configPolls {
		b.write("Corefile", fmt.Sprintf("%shold %dm\n}\n", good, 1+minutes))
		b.poll(t.Context())
	}
	b.holds(configPolls*time.Minute, 2*configPolls*time.Minute)
}

// TestInvalidCorefileIsRefusedAgain: said once, and the next good one is applied.
func TestInvalidCorefileIsRefusedAgain(t *testing.T) {
	b := newBench(t, good+"}\n")
	for _, text := range []string{good + "import Corefile\n}\n", good + "import Corefile\n}\n", good + "hold x\n}\n", good + "hold 6m\n}\n"} {
		b.write("Corefile", text)
		b.polls()
	}
	b.holds(6 * time.Minute)
	if log := b.log.String(); strings.Count(log, "imports itself in the end") != 1 || strings.Count(log, "Corefile:3: hold") != 1 {
		t.Errorf("log %s", log)
	}
}

// TestInvalidCacheKeepsTheRunningConfiguration: the cache follows the last valid file.
func TestInvalidCacheKeepsTheRunningConfiguration(t *testing.T) {
	b := newBench(t, good+"}\n")
	for _, line := range []string{"cache 5m", "cache {\nsuccess 5000\n}", "cache 1m {\nmin_ttl 2m\n}", "cache 10\nttl 1h 5s", "cache 10\nfollow maybe", "", "cache 10"} {
		b.write("Corefile", good+line+"\n}\n")
		b.polls()
	}
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

// TestWatchPolls until its context ends.
func TestWatchPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, good+"}\n")
		ctx, cancel := context.WithCancel(t.Context())
		go b.run(ctx)
		b.write("Corefile", good+"hold 5m\n}\n")
		time.Sleep(3 * configPoll)
		synctest.Wait()
		b.holds(5 * time.Minute)
		cancel()
		synctest.Wait()
	})
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
