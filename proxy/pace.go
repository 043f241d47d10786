package proxy

import (
	"sync/atomic"
	"time"
)

// pace is one address's token bucket, held as a single number: the moment at
// which the bucket is full again (the generic cell rate algorithm). The zero
// value is a full bucket.
type pace struct {
	full atomic.Int64 // nanoseconds since the server was made
}

// take takes one token at the moment now, if there is one: rate tokens come back
// each second and the bucket holds burst of them.
func (p *pace) take(now time.Duration, rate, burst int) bool {
	each := int64(time.Second) / int64(rate)
	room := each * int64(burst)
	for {
		full := p.full.Load()
		next := max(full, int64(now)) + each
		if full-int64(now) > room {
			next = int64(now) + each // the clock went back, or the limits changed
		}
		if next-int64(now) > room {
			return false
		}
		if p.full.CompareAndSwap(full, next) {
			return true
		}
	}
}

// paced tells whether the asker keeps to its rate; beyond it nothing is said,
// since a reply would cost more than the query did. The proxy's question to
// itself is exempt.
func (s *Server) paced(who asker) bool {
	limits := s.setup.Load().config.Limits
	if who.self || s.loads.of(who).pace.take(s.elapsed(), limits.RatePerPod, limits.BurstPerPod) {
		return true
	}
	s.stats.RateLimited.Add(1)
	return false
}

// elapsed is the time since the server was made, by a clock that nobody sets.
func (s *Server) elapsed() time.Duration { return s.now().Sub(s.born) }
