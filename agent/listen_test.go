package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/testkit/diff"
)

// consoleTwin is a console that fails a given number of times, and then runs.
type consoleTwin struct {
	failures int
	running  chan struct{}
}

func (c *consoleTwin) Run(ctx context.Context, h http.Handler) error {
	if c.failures--; c.failures >= 0 {
		return errors.New("the port is taken")
	}
	h.ServeHTTP(nil, nil)
	close(c.running)
	<-ctx.Done()
	return nil
}

func (c *consoleTwin) Viewer(*http.Request) (serve.Viewer, error) { return serve.Everything{}, nil }

// TestKeepListening: a console that cannot begin is tried again, ever more slowly,
// and ends with its agent.
func TestKeepListening(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	twin := &consoleTwin{failures: 6, running: make(chan struct{})}
	opened, answered := 0, 0
	open := func() (listening, error) {
		if opened++; opened == 1 {
			return nil, errors.New("no API server")
		}
		return twin, nil
	}
	answer := func(viewer func(*http.Request) (serve.Viewer, error)) http.Handler {
		if v, err := viewer(nil); v == nil || err != nil {
			t.Errorf("no viewer: %v", err)
		}
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { answered++ })
	}
	var waits []time.Duration
	pause := func(ctx context.Context, d time.Duration) error { waits = append(waits, d); return ctx.Err() }
	done := make(chan struct{})
	go func() {
		defer close(done)
		keepListening(ctx, open, answer, slog.New(slog.DiscardHandler), pause)
	}()
	<-twin.running
	cancel()
	<-done
	want := []time.Duration{1, 2, 4, 8, 16, 30, 30}
	for i := range want {
		want[i] *= time.Second
	}
	if !slices.Equal(waits, want) || answered != 1 || opened != 8 {
		t.Errorf("waited %v, opened %d times, answered %d times", waits, opened, answered)
	}
}

// TestKeepListeningEnds: an agent that ends while it waits does not try again.
func TestKeepListeningEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	opened := 0
	open := func() (listening, error) { opened++; return nil, errors.New("no") }
	keepListening(ctx, open, nil, slog.New(slog.DiscardHandler), func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() })
	diff.Equal(t, 1, opened, "times opened")
}
