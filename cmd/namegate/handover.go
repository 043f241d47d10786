package main

import (
	"context"
	"time"
)

const (
	// handOverMost is how long the next agent may take until queries come to it: less
	// than a pod has to end, with what is drained after.
	handOverMost = 20 * time.Second
	// handOverLook is how often that is looked for.
	handOverLook = 50 * time.Millisecond
	// lastQueries is how long queries may be on their way that were led to this agent
	// before they were led to the next.
	lastQueries = 200 * time.Millisecond
)

// handOver lets the agent that stands by have the node, and answers queries until
// they come to that one. False: there is none, or it has not taken them.
func (a *agent) handOver(f agentFlags, release func()) (taken bool) {
	if a.leaving() || !standsBy(f.socket) {
		return false
	}
	a.log.Info("another agent stands by; queries are answered until they come to it")
	release()
	ctx, cancel := context.WithTimeout(context.Background(), handOverMost)
	defer cancel()
	for ctx.Err() == nil {
		taken, err := a.enforce.TakenOver(ctx)
		if err != nil {
			a.log.Warn("nobody can tell whether the next agent has this node", "error", err)
		}
		wait := handOverLook
		if taken {
			wait = lastQueries
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		if taken {
			return true
		}
	}
	a.log.Warn("the next agent has not taken the queries; the resolver answers them", "waited", handOverMost)
	return false
}
