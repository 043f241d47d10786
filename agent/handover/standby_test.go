package handover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
)

// TestStandby: one agent waits for another to end and then takes the node; without
// --standby it fails at once.
func TestStandby(t *testing.T) {
	lock := Lock{filepath.Join(t.TempDir(), "agent.sock"), fmt.Sprintf("@namegate-standby-%d", os.Getpid())}
	never := func() { t.Error("it stands by") }
	release, err := lock.Take(context.Background(), false, never, slog.Default())
	fatal.If(t, err, "a free node")
	if _, err := lock.Take(context.Background(), false, never, slog.Default()); !errors.Is(err, errTaken) {
		t.Fatalf("a taken node: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	waits, took := make(chan bool), make(chan func(), 1)
	go func() {
		standingBy := func() {
			// The agent that ends finds it from then on.
			if !lock.hasNext() {
				t.Error("it stands by, and is not the next agent")
			}
			close(waits)
		}
		release, err := lock.Take(ctx, true, standingBy, slog.Default())
		if err != nil {
			t.Error(err)
		}
		took <- release
	}()
	<-waits
	release()
	release = <-took
	if lock.hasNext() {
		t.Error("the agent that has the node still stands by")
	}
	if release == nil {
		t.Fatal("the second agent did not take the node")
	}
	defer release()
	go func() {
		_, err := lock.Take(ctx, true, func() {}, slog.Default())
		diff.Is(t, context.Canceled, err, "ended while it stood by")
		took <- nil
	}()
	cancel()
	<-took
}
