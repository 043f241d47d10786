package agent

import (
	"context"
	"time"
)

// every calls f at once and then after each period, until ctx ends.
func every(ctx context.Context, period time.Duration, f func()) {
	for {
		f()
		if wait(ctx, period) != nil {
			return
		}
	}
}

// wait returns ctx's error if that ends before the time is over.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
