package nft_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/testkit/fatal"
	"github.com/namegate/namegate/testkit/netns"
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
			meanwhile string // commands of nft
			state     nft.State
			unchanged bool
		}{
			{"as it was", "", full, true},
			{"another serving address", "", serving, false},
			{"other ranges", "", ranges, false},
			{"fewer pods", "", fewer, false},
			{"an element lost", "delete element inet namegate selected4 { 10.1.0.5 }", full, false},
			{"an element too many", "add element inet namegate selected4 { 10.1.0.77 }", full, false},
			{"rules lost", "flush chain inet namegate forward", full, false},
			{"a chain too many", "add chain inet namegate entries-0", full, false},
			{"a table lost", "delete table bridge namegate", full, false},
			{"a table asleep", "add table inet namegate { flags dormant; }", full, false},
		} {
			t.Run(test.what, func(t *testing.T) {
				t.Parallel()
				netns.Own(t)
				open := func() *nft.Tables {
					tables := laterAgent(t)
					if namespace {
						tables.DecideNamespace()
					}
					return tables
				}
				before := open()
				fatal.If(t, errors.Join(before.Setup(ctx), before.Apply(ctx, full)))
				piped(t, test.meanwhile)
				watcher, later := open(), open()
				watcher.Checkpoint()
				fatal.If(t, errors.Join(later.Setup(ctx), later.Apply(ctx, test.state)))
				if changed := watcher.ExternalChange(); changed == test.unchanged {
					t.Errorf("the tables are written: %t", changed)
				}
				verified(t, watcher, test.state)
				fatal.If(t, later.Apply(ctx, full))
				verified(t, watcher, full)
			})
		}
	}
}
