package proxy

import (
	"time"
)

// minStep is by how much the clock must have been set to be followed: what is
// less is the clock being steered.
const minStep = 2 * time.Second

// wallClock is how the time that a clock tells has moved against the server's own,
// which cannot be set and which stands still while the machine is suspended.
type wallClock struct{ ahead time.Duration }

// step returns by how much the clock was set since it was last called, 0 for not
// noticeably, where so much time has passed since born.
func (w *wallClock) step(start, now time.Time) time.Duration {
	last := w.ahead
	w.ahead = now.Round(0).Sub(start.Round(0)) - now.Sub(start)
	if step := w.ahead - last; step >= minStep || step <= -minStep {
		return step
	}
	return 0
}

// Retime is to be called about once a second. Where the clock has been set forward,
// as it is when a suspended machine goes on, kept answers count as so much older:
// the names may have moved meanwhile. One that was set back makes nothing younger.
func (s *Server) Retime() {
	s.mu.Lock()
	defer s.mu.Unlock()
	step := s.wall.step(s.started, s.now())
	if step == 0 {
		return
	}
	s.logger.Info("the clock was set, or the machine was suspended; kept answers are older by what it was set forward", "by", step.Round(time.Millisecond))
	s.cache.Age(max(step, 0))
	s.warmed.Age(max(step, 0))
}
