package nft_test

import (
	"context"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/testkit/fatal"
)

// A restarted agent writes nothing where its tables are as it wants them, and else what differs;
// what another program did meanwhile is put right.
func TestARestartWritesTheDifference(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	serving, ranges, fewer := full, full, full
	serving.Resolvers = map[netip.Addr]netip.Addr{dns4: netip.MustParseAddr("169.254.20.65"), dns6: serve6}
	ranges.PodRanges = full.PodRanges[:1]
	fewer.Selected, fewer.Dropped = full.Selected[:1], nil
	for _, namespace := range []bool{false, true} {
		for _, test := range []struct {
			what      string
			meanwhile []string // commands of nft
			state     nft.State
			unchanged bool
		}{
			{"as it was", nil, full, true},
			{"another serving address", nil, serving, false},
			{"other ranges", nil, ranges, false},
			{"fewer pods", nil, fewer, false},
			{"an element lost", []string{"delete element inet namegate selected4 { 10.1.0.5 }"}, full, false},
			{"an element too many", []string{"add element inet namegate selected4 { 10.1.0.77 }"}, full, false},
			{"rules lost", []string{"flush chain inet namegate forward"}, full, false},
			{"a chain too many", []string{"add chain inet namegate entries-0"}, full, false},
			{"a table lost", []string{"delete table bridge namegate"}, full, false},
			{"a table asleep", []string{"add table inet namegate { flags dormant; }"}, full, false},
		} {
			t.Run(test.what, func(t *testing.T) {
				t.Parallel()
				open := func() *nft.Tables {
					tables, err := nft.Open(bits)
					fatal.If(t, err)
					if namespace {
						tables.DecideNamespace()
					}
					return tables
				}
				before := inKernel(t)
				if namespace {
					before.DecideNamespace()
				}
				fatal.If(t, before.Setup(ctx))
				fatal.If(t, before.Apply(ctx, full))
				for _, command := range test.meanwhile {
					out, err := exec.Command("nft", strings.Fields(command)...).CombinedOutput()
					if err != nil {
						t.Fatalf("%v: %s", err, out)
					}
				}
				watcher, later := open(), open()
				watcher.Checkpoint()
				fatal.If(t, later.Setup(ctx))
				fatal.If(t, later.Apply(ctx, test.state))
				if changed := watcher.ExternalChange(); changed == test.unchanged {
					t.Errorf("the tables are written: %t", changed)
				}
				if found, err := watcher.Verify(ctx, test.state); err != nil || len(found) > 0 {
					t.Errorf("deviations %v, %v", found, err)
				}
				fatal.If(t, later.Apply(ctx, full))
				if found, err := watcher.Verify(ctx, full); err != nil || len(found) > 0 {
					t.Errorf("after the next change: deviations %v, %v", found, err)
				}
			})
		}
	}
}
