package nft_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"sigs.k8s.io/knftables"

	"github.com/namegate/namegate/kernel/nft"
)

// Our own changes are told from those of others, and what was between them is not
// forgotten.
func TestForeign(t *testing.T) {
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
	settle := func() error { tables.Settle(); return nil }
	for _, step := range []struct {
		name    string
		do      func() error
		foreign bool
	}{
		{"before anybody has looked", func() error { return tables.Setup(ctx) }, true},
		{"the first state", func() error { return tables.Apply(ctx, full) }, true},
		{"a look", settle, false},
		{"a heartbeat", func() error { return tables.Alive(ctx) }, false},
		{"the same state", func() error { return tables.Apply(ctx, full) }, false},
		{"another state", func() error { return tables.Apply(ctx, nft.State{}) }, false},
		{"rules of iptables, ours", func() error { return tables.Own(restore("-A NAMEGATE-TEST -j RETURN\n")) }, false},
		{"a change of ours that changes nothing", func() error { return tables.Own(func() error { return nil }) }, false},
		{"a rival's table", rival("add", "table", "ip", "rival"), true},
		{"ours after it", func() error { return tables.Apply(ctx, full) }, true},
		{"a look", settle, false},
		{"a rival's rule of iptables", restore("-A NAMEGATE-TEST -j DROP\n"), true},
		{"a heartbeat after it", func() error { return tables.Alive(ctx) }, true},
		{"a look", settle, false},
		{"a heartbeat while ours changes", func() error {
			return tables.Own(func() error {
				return errors.Join(tables.Alive(ctx), restore("-A NAMEGATE-TEST -j RETURN\n")())
			})
		}, true},
		{"a look", settle, false},
		{"a rival while ours changes", func() error {
			return tables.Own(func() error {
				return errors.Join(rival("delete", "table", "ip", "rival")(), restore("-F NAMEGATE-TEST\n")())
			})
		}, true},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := tables.Foreign(); got != step.foreign {
			t.Errorf("after %s: foreign %t, want %t", step.name, got, step.foreign)
		}
	}
}

// Nobody can tell on fakes, so there it always may be.
func TestForeignOnFakes(t *testing.T) {
	tables := nft.New(knftables.NewFake(knftables.InetFamily, nft.TableName), knftables.NewFake(knftables.BridgeFamily, nft.TableName), mark)
	tables.Settle()
	if !tables.Foreign() {
		t.Error("a fake says that nobody else can have changed it")
	}
}
