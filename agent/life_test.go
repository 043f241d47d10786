package agent

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/namegate/namegate/agent/rollout"
	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/testkit/fatal"
)

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
