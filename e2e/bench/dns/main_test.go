package main

import (
	"bytes"
	"context"
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

func TestRunReportsErrors(t *testing.T) {
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

func TestServeReportsErrors(t *testing.T) {
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
