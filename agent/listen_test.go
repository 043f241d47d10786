package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console/serve"
	"github.com/namegate/namegate/testkit/diff"
	"github.com/namegate/namegate/testkit/fatal"
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

// TestAwaitAlone: the audit log begins when the predecessor has ended, and not where this
// agent ends first.
func TestAwaitAlone(t *testing.T) {
	for _, c := range []struct {
		coexists, ends int // after how many pauses
		want           bool
	}{{0, 9, true}, {3, 9, true}, {9, 3, false}} {
		pauses, began := 0, false
		awaitAlone(t.Context(), func() bool {
			if began {
				t.Error("it looks again")
			}
			return pauses < c.coexists
		}, func(context.Context, time.Duration) error {
			if pauses++; pauses == c.ends {
				return context.Canceled
			}
			return nil
		}, func() { began = true })
		if began != c.want || pauses != min(c.coexists, c.ends) {
			t.Errorf("%+v: began %v after %d pauses", c, began, pauses)
		}
	}
}

// TestLogIsCompleteWhileQueriesComeHere: while the resolver answers pods, the log lacks their queries.
func TestLogIsCompleteWhileQueriesComeHere(t *testing.T) {
	a, _ := agentOnFakes(t, slog.New(slog.DiscardHandler))
	a.audit = audit.To(io.Discard, audit.Options{})
	t.Cleanup(func() { fatal.If(t, a.audit.Close(context.Background())) })
	k := auditLog{a}
	a.beginAudit(t.Context())
	if d, known := k.Complete("shop"); known {
		t.Errorf("complete for %v before interception", d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { a.rollout.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	a.rollout.Offer(rollout.State{})
	<-a.rollout.First()
	fatal.If(t, a.enforce.Interception().Beat(t.Context(), func(context.Context) error { return nil }))
	if _, known := k.Complete("shop"); !known {
		t.Error("not complete while queries come to the agent")
	}
}
