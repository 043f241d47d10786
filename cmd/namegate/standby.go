package main

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// standbyTry is how often an agent that stands by looks whether the node is free:
// what passes between one agent and the next is at most that long.
const standbyTry = 50 * time.Millisecond

// take claims the node. With wait it stands by for as long as another agent has it;
// next makes this one the one that follows, if no other is that.
func take(ctx context.Context, wait bool, claim, next func() (func(), error), h *health, log *slog.Logger) (release func(), err error) {
	said := false
	var settled func() // ends that it is the one that follows
	defer func() {
		if settled != nil {
			settled()
		}
	}()
	for {
		release, err := claim()
		if err == nil {
			h.set(func(h *health) { h.standby, h.active = false, h.now() })
			return release, nil
		}
		if !wait || !errors.Is(err, errTaken) {
			return nil, err
		}
		if !said {
			log.Info("another agent serves this node; standing by until it ends")
			h.set(func(h *health) { h.standby = true })
			said = true
		}
		if settled == nil {
			settled, _ = next()
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(standbyTry):
		}
	}
}
