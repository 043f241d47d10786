package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test's own program be the benchmark's children.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if role, ok := roles[os.Args[1]]; ok {
			os.Exit(act(role, os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		args string
		want func(options) bool
	}{
		{"", func(o options) bool {
			return slices.Equal(o.only, names()) && slices.Equal(o.nodes, nodeNames) && slices.Equal(o.pods, []int{1, 10, 110, 250}) && o.rounds > 1
		}},
		{"-only flow,compile -rounds 3 -span 1s", func(o options) bool {
			return slices.Equal(o.only, []string{"flow", "compile"}) && o.rounds == 3 && o.span == time.Second
		}},
		{"-nodes namegate,linear -pods 110,250 -agent a -profile p", func(o options) bool {
			return slices.Equal(o.nodes, []string{guarded, linear}) && slices.Equal(o.pods, []int{110, 250}) && o.agent == "a" && o.profile == "p"
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
		"-only all":        "compile",
		"-nodes namegate,": "no-rules",
		"-pods 251":        "-pods",
		"-pods 1,none":     "-pods",
		"-rounds 0":        "-rounds",
		"-span 1ms":        "-span",
		"more":             "too much",
	} {
		var out bytes.Buffer
		if _, err := parse(strings.Fields(args), &out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want a word about %q", args, err, want)
		}
	}
}

func TestRunReportsErrors(t *testing.T) {
	for args, want := range map[string]string{"-rounds 0": "bench: -rounds", "-agent " + t.TempDir() + "/none": "make bench-enforcer"} {
		var out, notes bytes.Buffer
		if os.Geteuid() != 0 && strings.HasPrefix(args, "-agent") {
			want = "root"
		}
		if code := run(strings.Fields(args), &out, &notes); code != 2 || !strings.Contains(notes.String(), want) || out.Len() > 0 {
			t.Errorf("%s: %d, %q, figures %q", args, code, notes.String(), out.String())
		}
	}
}

// Each target is of a figure that differs from the others in its name or state.
func TestGoals(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range goals {
		key := g.Figure + g.State + g.Peer
		if seen[key] || g.Value == 0 && g.Least == 0 && g.Figure != "reuse.lost_connections" {
			t.Errorf("%+v", g)
		}
		seen[key] = true
	}
}
