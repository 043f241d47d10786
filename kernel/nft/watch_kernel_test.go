package nft_test

import (
	"context"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/fatal"
)

// TestWatchTellsOfChanges: every change of our tables by another program, and none of
// tables that are not ours. The order of events is the kernel's: an unrelated change
// followed by one of ours gives one token for the second.
func TestWatchTellsOfChanges(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tables := written(t, named())
	changes, err := tables.Watch(ctx, func(err error) { t.Error(err) })
	fatal.If(t, err)
	for _, command := range []string{"add table ip theirs", "add chain ip theirs c", "add rule ip theirs c accept", "delete table ip theirs"} {
		piped(t, command)
	}
	fatal.If(t, tables.Heartbeat(ctx))
	select {
	case <-changes:
		t.Error("a token for a change of tables that are not ours, or of the dead-man switch")
	case <-time.After(100 * time.Millisecond):
	}
	for _, change := range []string{
		"add element inet namegate selected4 { 10.1.0.77 }",
		"delete element inet namegate selected4 { 10.1.0.77 }",
		"add element inet namegate entries-denied-4 { 10.1.0.5 . 192.0.2.9 timeout 1h }",
		"flush set inet namegate entries-denied-4",
		"insert rule inet namegate judge accept",
		"flush chain inet namegate judge",
		"add chain bridge namegate theirs",
		"delete table bridge namegate",
		"add table ip mangle",
		"flush ruleset",
	} {
		piped(t, change)
		select {
		case <-changes:
		case <-time.After(time.Minute):
			t.Errorf("no token after nft %q", change)
		}
	}
}
