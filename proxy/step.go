package proxy

import "time"

// stepLeast is by how much the clock must have been set to be followed: what is
// less is the clock being steered.
const stepLeast = 2 * time.Second

// wallClock is how the time that a clock tells has moved against the server's own,
// which nobody sets and which stands still while the machine is suspended.
type wallClock struct{ ahead time.Duration }

// step returns by how much the clock was set since it was last called, 0 for not
// noticeably, where so much time has passed since born.
func (w *wallClock) step(born, now time.Time) time.Duration {
	last := w.ahead
	w.ahead = now.Round(0).Sub(born.Round(0)) - now.Sub(born)
	if step := w.ahead - last; step >= stepLeast || step <= -stepLeast {
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
	step := s.wall.step(s.born, s.now())
	if step == 0 {
		return
	}
	s.logger.Info("the clock was set, or the machine was suspended; kept answers are older by what it was set forward", "by", step.Round(time.Millisecond))
	s.cache.older(max(step, 0))
	s.warmed.older(max(step, 0))
}

// older makes what is kept older, and lets go of all replays: what they say in the
// log are times of the clock as it was.
func (c *cache) older(by time.Duration) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for _, key := range s.lru.Keys() {
			e, _ := s.lru.Peek(key)
			o := e.older(by)
			s.lru.Add(key, o) // in its place, and the oldest first
			s.bytes += o.size - e.size
			delete(s.telling, e)
		}
		s.mu.Unlock()
	}
}

// older returns the entry as one that came earlier; the caller holds the lock.
func (e *entry) older(by time.Duration) *entry {
	return &entry{
		wire: e.wire, from: e.from, query: e.query, key: e.key, zone: e.zone, nowhere: e.nowhere,
		born: e.born - by, end: e.end - by, gone: e.gone - by,
		size: e.size - e.told, askers: e.askers,
	}
}

// at returns the time that was or will be when the server is so old, as the clock
// tells it now.
func (s *Server) at(age time.Duration) time.Time {
	now := s.now()
	return now.Add(age - now.Sub(s.born))
}
