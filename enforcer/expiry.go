package enforcer

import (
	"context"
	"time"
)

// expiryTick is how late a grant may end: deadlines are looked at this often.
const expiryTick = 100 * time.Millisecond

// RunExpiry ends grants at their deadlines until ctx ends, but not while an
// earlier agent is there that may move them.
func (e *Enforcer) RunExpiry(ctx context.Context) {
	tick := time.NewTicker(expiryTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			there, err := e.AwaitPredecessor(ctx)
			if err != nil {
				e.log.Error("what the last agent left stays; trying again", "error", err)
			}
			if there {
				continue
			}
			if err := e.grants.Expire(); err != nil {
				e.log.Error("grants past their deadline stay until the kernel ends them", "error", err)
			}
		}
	}
}
