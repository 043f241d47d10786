package audit

import (
	"log/slog"
	"time"
)

// calm is for how long every line must have been written until the loss of some is
// called over: on a disk that is nearly full some fit and some do not.
const calm = 5 * time.Second

// losses tells when lines begin to be lost to a sink that fails, and when that is
// over. It belongs to the writer's goroutine.
type losses struct {
	now   func() time.Time
	log   *slog.Logger
	lines uint64    // lost since they began, 0 while none are
	last  time.Time // when the last were
}

// note takes what became of a write.
func (l *losses) note(lost uint64, err error) {
	switch {
	case err != nil:
		if l.lines == 0 {
			l.log.Error("the audit log cannot be written; lines are lost and counted until it can", "error", err)
		}
		l.lines += max(lost, 1)
		l.last = l.now()
	case l.lines > 0 && l.now().Sub(l.last) >= calm:
		l.log.Info("the audit log is written again", "lost", l.lines)
		l.lines = 0
	}
}
