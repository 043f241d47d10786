package counters

import (
	"sync/atomic"
	"time"
)

// bounds are the upper bounds of the buckets of every latency. The first is about the
// latency of a cached answer under load, the last the time after which clients give up.
var bounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
}

// Bounds returns the upper bounds of a Histogram's buckets, ascending.
func Bounds() []time.Duration { return append([]time.Duration(nil), bounds[:]...) }

// Histogram is how long something took, of many queries.
type Histogram struct {
	// Counts are by bucket, not cumulative; the last bucket has no upper bound.
	Counts [len(bounds) + 1]uint64
	// Sum is of all.
	Sum time.Duration
}

// Total returns how many there were.
func (h Histogram) Total() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// plus adds what another has counted.
func (h Histogram) plus(other Histogram) Histogram {
	for i, n := range other.Counts {
		h.Counts[i] += n
	}
	h.Sum += other.Sum
	return h
}

// Latency is the duration of selected pods' queries, split by stage. A query counts once
// in Decision and Total, and in Upstream and Grant if it reached them.
type Latency struct {
	Decision Histogram // the agent's own work: Total without the two others
	Upstream Histogram // until an upstream's answer was there, or known not to come
	Grant    Histogram // until the kernel acknowledged the addresses, or did not
	Total    Histogram // from the question's arrival to the reply
}

// histogram counts without a lock: a scrape may see a question's bucket before its
// part of the sum.
type histogram struct {
	counts [len(bounds) + 1]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

// observe counts one; a clock that went back took no time.
func (h *histogram) observe(d time.Duration) {
	d = max(d, 0)
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

func (h *histogram) load() (out Histogram) {
	for i := range h.counts {
		out.Counts[i] = h.counts[i].Load()
	}
	out.Sum = time.Duration(h.sum.Load())
	return out
}

// latency is the running Latency. Cache hits wait for nothing: observed once, added to
// Decision and Total on read.
type latency struct {
	hits, decision, upstream, grant, total histogram
}

func (l *latency) load() Latency {
	hits := l.hits.load()
	return Latency{
		Decision: l.decision.load().plus(hits), Upstream: l.upstream.load(),
		Grant: l.grant.load(), Total: l.total.load().plus(hits),
	}
}

// Spent is what one query has waited for so far.
type Spent struct {
	upstream, grant time.Duration
	asked, opened   bool // an upstream; the kernel
}

// Heard notes a wait for an upstream.
func (s *Spent) Heard(took time.Duration) { s.asked, s.upstream = true, s.upstream+max(took, 0) }

// Acknowledged notes a wait for the kernel.
func (s *Spent) Acknowledged(took time.Duration) { s.opened, s.grant = true, s.grant+max(took, 0) }

// Hit counts a cache hit.
func (l *latency) Hit(took time.Duration) { l.hits.observe(took) }

// Observe counts a query that took so long in all.
func (l *latency) Observe(s Spent, total time.Duration) {
	if s.asked {
		l.upstream.observe(s.upstream)
	}
	if s.opened {
		l.grant.observe(s.grant)
	}
	l.decision.observe(total - s.upstream - s.grant)
	l.total.observe(total)
}
