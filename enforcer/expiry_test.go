package enforcer

import (
	"context"
	"testing"
	"time"

	"github.com/namegate/namegate/testkit/fatal"
)

func TestRunExpiryEndsGrants(t *testing.T) {
	t.Parallel()
	w, p := web(t)
	w.answer(p, "www.example.org", 60, "192.0.2.1")
	w.clock.Pass(time.Hour)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { w.e.RunExpiry(ctx); close(over) }()
	fatal.Await(t, "the end of the grant", func() bool { return w.e.Status().Grants == 0 })
	cancel()
	<-over
}
