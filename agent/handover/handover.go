package handover

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// maxHandOver is how long the next agent may take until queries come to it: less
	// than a pod has to end, with the drain that follows.
	maxHandOver = 20 * time.Second
	// takenOverPoll is how often TakenOver is asked.
	takenOverPoll = 50 * time.Millisecond
	// lastQueries is how long queries may be on their way that were led to this agent
	// before they were led to the next.
	lastQueries = 200 * time.Millisecond
)

// Steps are an agent's, which ends.
type Steps struct {
	// Leaving tells whether no agent is to follow on this node.
	Leaving func() bool
	// TakenOver tells whether the kernel leads queries to the next agent.
	TakenOver func(context.Context) (bool, error)
	// StopHeartbeat ends the renewal of interception and waits for its end.
	StopHeartbeat func()
	// Disable ends interception at once: the resolver answers pods.
	Disable func(context.Context) error
}

// Finish ends the service of an agent that no longer writes to the kernel. A successor
// that stands by gets the node and then its queries; until then this agent intercepts and
// answers them, and taken is true. Without a successor interception ends.
func (l Lock) Finish(ctx context.Context, release func(), s Steps, log *slog.Logger) (taken bool, err error) {
	taken = !s.Leaving() && l.hasNext() && handOver(ctx, release, s, log)
	s.StopHeartbeat()
	if taken {
		return true, nil
	}
	return false, s.Disable(ctx)
}

// handOver releases the node and waits until queries come to the next agent. It returns
// false if they do not in time.
func handOver(ctx context.Context, release func(), s Steps, log *slog.Logger) (taken bool) {
	log.Info("another agent stands by; queries are answered until they come to it")
	release()
	ctx, cancel := context.WithTimeout(ctx, maxHandOver)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, takenOverPoll, true, func(ctx context.Context) (bool, error) {
		taken, err := s.TakenOver(ctx)
		if err != nil {
			log.Warn("cannot determine whether the next agent serves this node", "error", err)
		}
		return taken, nil
	})
	if err != nil {
		log.Warn("the next agent has not taken the queries; the resolver answers them", "waited", maxHandOver)
		return false
	}
	time.Sleep(lastQueries)
	return true
}
