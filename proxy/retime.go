package proxy

import (
	"time"
)

// minStep is the smallest change of the clock that counts as set: a smaller one is a
// clock that is being slewed.
const minStep = 2 * time.Second

// wallClock is the difference between the wall clock and the server's own clock, which
// cannot be set and which stands still while the machine is suspended.
type wallClock struct{ ahead time.Duration }

// step returns by how much the clock was set since the last call, 0 for less than
// minStep. start is the server's start.
func (w *wallClock) step(start, now time.Time) time.Duration {
	last := w.ahead
	w.ahead = now.Round(0).Sub(start.Round(0)) - now.Sub(start)
	if step := w.ahead - last; step >= minStep || step <= -minStep {
		return step
	}
	return 0
}

// Retime is to be called about once a second. If the clock was set forward, as after a
// suspended machine resumes, cached answers count as that much older: the names may have
// changed meanwhile. A clock that was set back makes no answer younger.
func (s *Server) Retime() {
	s.mu.Lock()
	defer s.mu.Unlock()
	step := s.wall.step(s.started, s.now())
	if step == 0 {
		return
	}
	s.logger.Info("the clock was set, or the machine was suspended; kept answers are older by what it was set forward", "by", step.Round(time.Millisecond))
	for a := range s.setup.Load().answers() {
		a.cache.Age(max(step, 0))
		a.warmed.Age(max(step, 0))
	}
}
