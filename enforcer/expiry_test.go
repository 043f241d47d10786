package enforcer

import (
	"context"
	"testing"
	"time"
)

func TestRunExpiryEndsGrants(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	w.clock.Pass(time.Hour)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { w.e.RunExpiry(ctx); close(over) }()
	deadline := time.After(time.Minute)
	for w.e.Status().Grants > 0 {
		select {
		case <-deadline:
			t.Fatal("the grant is still there")
		case <-time.After(expiryTick / 4):
		}
	}
	cancel()
	<-over
}
