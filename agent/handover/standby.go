package handover

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// standbyPoll is the interval at which an agent that stands by tries to claim the node:
// it bounds the time between two agents.
const standbyPoll = 50 * time.Millisecond

// Take claims the node. With standby it stands by while another agent has the node, unless a
// third agent already stands by, and calls standingBy once.
func (l Lock) Take(ctx context.Context, standby bool, standingBy func(), log *slog.Logger) (release func(), err error) {
	reported := false
	var leave func() // ends that this agent is the next
	defer func() {
		if leave != nil {
			leave()
		}
	}()
	err = wait.PollUntilContextCancel(ctx, standbyPoll, true, func(context.Context) (bool, error) {
		release, err = l.Claim()
		if err == nil || !standby || !errors.Is(err, errTaken) {
			return true, err
		}
		if leave == nil { // before the report, after which the other agent may be ended
			leave, _ = l.claimNext()
		}
		if !reported {
			log.Info("another agent serves this node; standing by until it ends")
			standingBy()
			reported = true
		}
		return false, nil
	})
	return release, err
}
