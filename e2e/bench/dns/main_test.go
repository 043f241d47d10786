package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		args string
		want func(options) bool
	}{
		{"", func(o options) bool {
			return o.rounds == 5 && o.span == 2*time.Second && o.cache && o.profile == "" && slices.Equal(o.only, names())
		}},
		{"-only cached -rounds 3", func(o options) bool { return o.rounds == 3 && slices.Equal(o.only, []string{"cached"}) }},
		{"-only forwarded,memory -span 500ms", func(o options) bool {
			return o.span == 500*time.Millisecond && slices.Equal(o.only, []string{"forwarded", "memory"})
		}},
		{"-cache=false -agent a -coredns c -profile p", func(o options) bool {
			return !o.cache && o.agent == "a" && o.coredns == "c" && o.profile == "p"
		}},
	} {
		var out bytes.Buffer
		if o, err := parse(strings.Fields(c.args), &out); err != nil || !c.want(o) {
			t.Errorf("%q: %+v, %v", c.args, o, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"-only all":     "cached",
		"-only cached,": "forwarded",
		"-rounds 0":     "-rounds",
		"-span 1ms":     "-span",
		"more":          "too much",
		"-unknown":      "unknown",
	} {
		var out bytes.Buffer
		if _, err := parse(strings.Fields(args), &out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want a word about %q", args, err, want)
		}
	}
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	var out, notes bytes.Buffer
	if code := run([]string{"-rounds", "0"}, &out, &notes); code != 2 || !strings.Contains(notes.String(), "bench: -rounds") {
		t.Errorf("%d, %q", code, notes.String())
	}
	if out.Len() > 0 {
		t.Errorf("the standard output is for figures alone, it has %q", out.String())
	}
	notes.Reset()
	if code := run([]string{"-help"}, &out, &notes); code != 0 || !strings.Contains(notes.String(), "-only") {
		t.Errorf("-help: %d, %q", code, notes.String())
	}
}

func TestServeSaysWhatIsWrong(t *testing.T) {
	if code := serve("echo", "nowhere"); code != 2 {
		t.Errorf("an address that is none: %d", code)
	}
}

func TestMissingProgram(t *testing.T) {
	o := options{agent: filepath.Join(t.TempDir(), "namegate"), coredns: os.Args[0]}
	if _, err := newBench(context.Background(), o, nil, nil); err == nil || !strings.Contains(err.Error(), o.agent) {
		t.Errorf("without an agent: %v", err)
	}
}

// A benchmark waits for another and removes what a killed one left.
func TestAlone(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var notes bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	first := &bench{ctx: ctx, notes: &notes}
	if err := first.alone(); err != nil {
		t.Fatal(err)
	}
	second := &bench{ctx: ctx, notes: &notes}
	end := make(chan error, 1)
	go func() { end <- second.alone() }()
	select {
	case err := <-end:
		t.Fatalf("the second did not wait: %v", err)
	case <-time.After(250 * time.Millisecond):
	}
	first.lock.Close()
	if err := <-end; err != nil {
		t.Fatalf("the second, alone: %v", err)
	}
	if !strings.Contains(notes.String(), "another benchmark runs") {
		t.Errorf("the second did not say why it waited: %q", notes.String())
	}
	third := &bench{ctx: ctx, notes: &notes}
	cancel()
	if err := third.alone(); !errors.Is(err, errInterrupted) {
		t.Errorf("interrupted while it waited: %v", err)
	}
	second.lock.Close()
	third.lock.Close()
}

func TestSweep(t *testing.T) {
	parent := t.TempDir()
	left := filepath.Join(parent, dirPrefix+"1", "gate1")
	kept := filepath.Join(parent, "namegate-other")
	for _, dir := range []string{left, kept} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := sweep(parent); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(left)); !os.IsNotExist(err) {
		t.Errorf("a killed benchmark's folder stays: %v", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("another's folder is gone: %v", err)
	}
}
