package nft_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestChangesAfterARival: whatever another program did to the tables, a change makes all of its
// state, with few tries, or after a look. A lost second net does not hold up the
// other tables.
func TestChangesAfterARival(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	before, next := subjects(), subjects()
	next.Subjects[0].Grants, next.Subjects[0].List, next.Staged = next.Subjects[0].Grants[:1], "", nil
	next.GrantSets, next.Selected, next.Pods = next.GrantSets[:1], next.Selected[:1], nil
	next.PortHomes, next.Ports = next.PortHomes[:1], nil
	for _, change := range [][2]nft.State{{before, next}, {next, before}} {
		for rival, tries := range map[string]int{
			"": 1, "delete table inet namegate-net": 2, "flush set inet namegate-net selected6": 1, "flush set inet namegate-net ifaces": 1,
			"flush ruleset": 2, "delete table inet namegate": 2, "delete table bridge namegate": 2, "flush table inet namegate": 2,
			"flush set inet namegate selected6": 2, "flush set bridge namegate ports": 2, "flush map inet namegate pods4": 2,
			"flush map inet namegate pods4; flush map inet namegate pods6":                      2,
			"add chain inet namegate list-0; add set inet namegate peers-0 { type ipv4_addr; }": 1,
			"add set inet namegate grants-0123456789ab-any-4 { type ipv6_addr; }":               3,
		} {
			tables := inKernel(t)
			tables.DecideNamespace()
			fatal.If(t, errors.Join(tables.Setup(ctx), tables.Apply(ctx, change[0]), tables.Apply(ctx, change[0])))
			if rival != "" {
				_ = exec.Command("nft", rival).Run() // a set that is there is an error
			}
			var err error
			for try := 1; ; try++ {
				err = tables.Apply(ctx, change[1])
				if selected, readErr := tables.Selected(ctx); strings.Contains(rival, "-net") && (readErr != nil || len(selected) != len(change[1].Selected)) {
					t.Errorf("after %q try %d leaves %v selected: %v", rival, try, selected, readErr)
				}
				if err == nil || try == tries {
					break
				}
			}
			if err != nil {
				t.Errorf("after %q %d tries fail: %.300v", rival, tries, err)
				continue
			}
			// What a change did not meet, a look does.
			if _, err := tables.Verify(ctx, change[1]); err != nil {
				t.Errorf("after %q: %v", rival, err)
			}
			fatal.If(t, tables.Apply(ctx, change[1]))
			verified(t, tables, change[1])
		}
	}
}
