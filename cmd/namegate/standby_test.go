package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestStandby: one agent waits for another to end and then takes the node; without
// --standby it fails at once.
func TestStandby(t *testing.T) {
	dir := t.TempDir()
	name := fmt.Sprintf("@namegate-standby-%d", os.Getpid())
	f := agentFlags{socket: filepath.Join(dir, "agent.sock")}
	claimHere := func() (func(), error) { return claim(f.socket, name) }
	next := func() (func(), error) { return claimStandby(f.socket) }
	first := newHealth(time.Now)
	release, err := take(context.Background(), false, claimHere, next, first, slog.Default())
	if err != nil || first.active.IsZero() {
		t.Fatalf("a free node: %v", err)
	}
	if _, err := take(context.Background(), false, claimHere, next, newHealth(time.Now), slog.Default()); !errors.Is(err, errTaken) {
		t.Fatalf("a taken node: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	second := newHealth(time.Now)
	second.synced = true
	waits := func() bool {
		second.mu.Lock()
		defer second.mu.Unlock()
		return second.standby
	}
	took := make(chan func(), 1)
	go func() {
		release, err := take(ctx, true, claimHere, next, second, slog.Default())
		if err != nil {
			t.Error(err)
		}
		took <- release
	}()
	for !waits() {
		time.Sleep(time.Millisecond)
	}
	for !standsBy(f.socket) {
		time.Sleep(time.Millisecond)
	}
	if err := second.ready(); err != nil {
		t.Errorf("an agent that stands by is not ready: %v", err)
	}
	release()
	release = <-took
	if standsBy(f.socket) {
		t.Error("the agent that has the node still stands by")
	}
	if release == nil || waits() || second.active.IsZero() {
		t.Fatal("the second agent did not take the node")
	}
	defer release()
	go func() {
		_, err := take(ctx, true, claimHere, next, newHealth(time.Now), slog.Default())
		took <- nil
		if !errors.Is(err, context.Canceled) {
			t.Errorf("ended while it stood by: %v", err)
		}
	}()
	cancel()
	<-took
}
