package intercept

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// tables switches interception on and off.
type tables struct{ on bool }

func (t *tables) Heartbeat(context.Context) error { t.on = true; return nil }
func (t *tables) Disable(context.Context) error   { t.on = false; return nil }
func (t *tables) LoopTested(context.Context, string) ([]netip.Addr, error) {
	return nil, nil
}
func (t *tables) Serving(context.Context) (map[netip.Addr]netip.Addr, error) {
	return nil, nil
}

// newBeating returns an interception, and whether it is on in the kernel. beaten is called
// after each heartbeat of KeepAlive.
func newBeating(beaten func(err error, changed bool)) (*Interception, *tables) {
	kernel := &tables{}
	i := New(Config{
		Tables: kernel, Now: time.Now, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Beaten: func(_ time.Time, err error, changed bool) { beaten(err, changed) },
	})
	i.Begin()
	return i, kernel
}

func TestBeatOnlyAfterAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, kernel := newBeating(nil)
		mute := errors.New("no answer")
		if err := i.Beat(t.Context(), func(context.Context) error { return mute }); !errors.Is(err, mute) || kernel.on || i.On() {
			t.Errorf("without an answer: %v, on: %v", err, kernel.on)
		}
		// A proxy that answers itself late still answers pods: interception goes on.
		late := func(ctx context.Context) error {
			select {
			case <-time.After(1900 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err := i.Beat(t.Context(), late); err != nil || !kernel.on || !i.On() {
			t.Errorf("after an answer: %v, on: %v", err, kernel.on)
		}
		time.Sleep(3 * time.Second)
		if i.On() {
			t.Error("said to be on three seconds after the last heartbeat")
		}
		hung := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		began := time.Now()
		if err := i.Beat(t.Context(), hung); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != maxBeat {
			t.Errorf("a hung proxy: %v after %v", err, time.Since(began))
		}
	})
}

// TestKeepAlive has heartbeats fail for longer than the switch holds: the first failure and
// the first success after it are changes, and returned is called once.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures, changes, returns := 0, 0, 0
		i, kernel := newBeating(func(err error, changed bool) {
			if err != nil {
				failures++
			}
			if changed {
				changes++
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		go i.KeepAlive(ctx, func(context.Context) error {
			if at := time.Since(began); at > 2*time.Second && at < 7*time.Second {
				return errors.New("no answer")
			}
			return nil
		}, func() { returns++ })
		time.Sleep(6500 * time.Millisecond)
		synctest.Wait()
		if failures != 4 || changes != 1 || returns != 0 || i.On() {
			t.Errorf("%d failures, %d changes, returned %d times, on: %v", failures, changes, returns, i.On())
		}
		i.Renew()
		synctest.Wait()
		if failures != 5 {
			t.Error("not renewed at once")
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if changes != 2 || returns != 1 || !i.On() {
			t.Errorf("%d changes, returned %d times, on: %v", changes, returns, i.On())
		}
		cancel()
		synctest.Wait()
		if err := i.Disable(t.Context()); err != nil || kernel.on {
			t.Errorf("disabled: %v, on: %v", err, kernel.on)
		}
	})
}
