package layout_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/nft/timed"
)

// TestExternalChange: our own changes do not count as external ones, and an external change
// between two of ours is not forgotten.
func TestExternalChange(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tables := inKernel(t)
	rival := func(args ...string) func() error {
		return func() error { return exec.Command("nft", args...).Run() }
	}
	restore := func(rule string) func() error {
		return func() error {
			cmd := exec.Command("iptables-nft-restore", "--noflush")
			cmd.Stdin = strings.NewReader("*mangle\n:NAMEGATE-TEST - [0:0]\n" + rule + "COMMIT\n")
			return cmd.Run()
		}
	}
	entries := func(set string) func() error {
		return func() error {
			op := []timed.Op{{Set: set, Entries: []timed.Entry{entry(far4, time.Hour, "", timed.Unknown)}}}
			if tables.ApplyEntries(op); timed.IsNoSet(op[0].Err) != (set == "missing") {
				return op[0].Err
			}
			return nil
		}
	}
	checkpoint := func() error { tables.Checkpoint(); return nil }
	for _, step := range []struct {
		name     string
		do       func() error
		external bool
	}{
		{"before anybody has looked", func() error { return tables.Setup(ctx) }, true},
		{"the first state", func() error { return tables.Apply(ctx, named()) }, true},
		{"a look", checkpoint, false},
		{"a heartbeat", func() error { return tables.Heartbeat(ctx) }, false},
		{"an entry", entries("denied"), false},
		{"an entry for a set that is missing", entries("missing"), false},
		{"the same state", func() error { return tables.Apply(ctx, named()) }, false},
		{"another state", func() error { return tables.Apply(ctx, layout.State{}) }, false},
		{"rules of iptables, ours", func() error { return tables.Own(restore("-A NAMEGATE-TEST -j RETURN\n")) }, false},
		{"a change of ours that changes nothing", func() error { return tables.Own(func() error { return nil }) }, false},
		{"a rival's table", rival("add", "table", "ip", "rival"), true},
		{"ours after it", func() error { return tables.Apply(ctx, full) }, true},
		{"a look", checkpoint, false},
		{"a rival's rule of iptables", restore("-A NAMEGATE-TEST -j DROP\n"), true},
		{"a heartbeat after it", func() error { return tables.Heartbeat(ctx) }, true},
		{"a look", checkpoint, false},
		{"a heartbeat while ours changes", func() error {
			return tables.Own(func() error {
				return errors.Join(tables.Heartbeat(ctx), restore("-A NAMEGATE-TEST -j RETURN\n")())
			})
		}, true},
		{"a look", checkpoint, false},
		{"a rival while ours changes", func() error {
			return tables.Own(func() error {
				return errors.Join(rival("delete", "table", "ip", "rival")(), restore("-F NAMEGATE-TEST\n")())
			})
		}, true},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := tables.ExternalChange(); got != step.external {
			t.Errorf("after %s: external %t, want %t", step.name, got, step.external)
		}
	}
}
