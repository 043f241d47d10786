package kube

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// TestWait: when a wait for the end of a burst ends. Each change of this node restarts
// the quiet time, up to the maximum. Changes of pods of other nodes have a separate time,
// which neither prolongs the quiet time nor is prolonged.
func TestWait(t *testing.T) {
	const step = QuietDelay - time.Millisecond
	var (
		note   = (*Source).note
		remote = (*Source).noteRemote
		both   = func(s *Source) { s.note(); s.noteRemote() }
		none   = func(*Source) {}
	)
	for name, c := range map[string]struct {
		changes []func(*Source) // one each step, the last one again and again
		want    time.Duration
	}{
		"a change":                   {[]func(*Source){note, none}, QuietDelay},
		"a burst":                    {[]func(*Source){note, note, note, none}, 2*step + QuietDelay},
		"a burst without end":        {[]func(*Source){note}, MostDelay},
		"others alone":               {[]func(*Source){remote, none}, RemoteDelay},
		"others without end":         {[]func(*Source){remote}, RemoteDelay},
		"others prolong nothing":     {[]func(*Source){remote, both, note, remote}, 2*step + QuietDelay},
		"others end a burst in time": {[]func(*Source){remote, note}, RemoteDelay},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, began := &Source{clock: clock.RealClock{}, events: make(chan struct{}, 1), others: make(chan struct{}, 1)}, time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					for i := 0; ctx.Err() == nil; i++ {
						c.changes[min(i, len(c.changes)-1)](s)
						select {
						case <-time.After(step):
						case <-ctx.Done():
						}
					}
				}()
				if over, took := s.wait(ctx), time.Since(began); !over || took != c.want {
					t.Errorf("%v after %v, want %v", over, took, c.want)
				}
			})
		})
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if (&Source{clock: clock.RealClock{}}).wait(ctx) {
		t.Error("a State after the end")
	}
}
