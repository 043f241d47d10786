package handover

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// standbyPoll is the interval at which an agent that stands by tries to claim the node:
// it bounds the time between two agents.
const standbyPoll = 50 * time.Millisecond

// Take claims the node. With wait it stands by while another agent has the node, unless a
// third agent already stands by, and calls standingBy once.
func (l Lock) Take(ctx context.Context, wait bool, standingBy func(), log *slog.Logger) (release func(), err error) {
	reported := false
	var leave func() // ends that this agent is the next
	defer func() {
		if leave != nil {
			leave()
		}
	}()
	for {
		release, err := l.Claim()
		if err == nil || !wait || !errors.Is(err, errTaken) {
			return release, err
		}
		if !reported {
			log.Info("another agent serves this node; standing by until it ends")
			standingBy()
			reported = true
		}
		if leave == nil {
			leave, _ = l.claimNext()
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(standbyPoll):
		}
	}
}
