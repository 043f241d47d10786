package enforcer

import "time"

// moment is a time as the grant table keeps it, in nanoseconds since the agent
// started by the clock that nobody sets: of 100,000 grants each byte counts, and
// a node whose clock is put right must neither end grants nor prolong them.
type moment int64

func (e *Enforcer) moment(t time.Time) moment { return moment(t.Sub(e.started)) }

// instant is one reading of the clock.
type instant struct {
	now   moment
	epoch time.Time // of moment 0, as the clock now tells the time
}

func (e *Enforcer) instant() instant {
	t := e.now()
	now := e.moment(t)
	return instant{now, t.Add(-time.Duration(now))}
}

// unix returns the first whole second that is not before a moment, as Unix time.
func (m moment) unix(epoch time.Time) int64 {
	return epoch.Add(time.Duration(m) + time.Second - 1).Unix()
}
