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

// pacing is what an asker's rate means for one query.
type pacing uint8

const (
	inPace   pacing = iota // it is answered
	overPace               // SERVFAIL, unasked
	silence                // nothing is said
)

// paced tells what becomes of the asker's query. Beyond its rate it is told so, as
// often as it may ask and no more: in a flood a reply would cost more than the query
// did. The proxy's question to itself is exempt.
func (s *Server) paced(who asker, now time.Duration) pacing {
	limits := s.setup.Load().config.Limits
	ld := s.loads.of(who)
	if who.self || ld.pace.take(now, limits.RatePerPod, limits.BurstPerPod) {
		return inPace
	}
	s.stats.RateLimited.Add(1)
	return s.shed(ld, now)
}

// shed tells whether a query that is not taken is told so.
func (s *Server) shed(ld *load, now time.Duration) pacing {
	limits := s.setup.Load().config.Limits
	if ld.sheds.take(now, limits.RatePerPod, limits.BurstPerPod) {
		return overPace
	}
	s.stats.RateSilenced.Add(1)
	return silence
}

// elapsed is the time since the server was made, by a clock that nobody sets.
func (s *Server) elapsed() time.Duration { return s.now().Sub(s.born) }
