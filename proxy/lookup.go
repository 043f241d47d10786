package proxy

import (
	"errors"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/proxy/cache"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
)

// staleWait is how long a client waits for the upstream when there is a stale answer for
// it (RFC 8767 §5: 1.8 seconds, below the least time-out of clients).
const staleWait = 1800 * time.Millisecond

// zone is a zone of the configuration, or a resolver of the host, with what its upstreams answered.
type zone struct {
	*answers
	config    *corefile.Config
	settings  *corefile.Zone
	upstreams upstreams  // how they are asked
	host      netip.Addr // the resolver of the host; the zero address: a zone of the configuration
}

// answers are what is known of upstreams: one for the zones of the configuration, and one for each
// resolver of the host, since an answer of one is not given to a query to another.
type answers struct {
	cache    *cache.Cache
	warmed   *cache.Cache // the answers that warm-ups got
	renewals renewals
	cookies  cookies
}

func (s *Server) newAnswers(c *corefile.Config) *answers {
	return &answers{cache: cache.New(c.CacheEntries, c.CacheBytes), warmed: cache.New(warmEntries, warmBytes),
		renewals: renewals{s: s, all: map[*cache.Entry]*renewal{}}, cookies: cookies{s: s}}
}

// keeps returns the settings by which the answer to the query is kept, nil if it is not.
func (z *zone) keeps(q wire.Query) *corefile.Zone {
	if z == nil || z.settings.Cache == nil || q.Options != "" || q.Class != dns.ClassINET {
		return nil
	}
	return z.settings
}

// lookup finds what answers: the cache, an identical call in flight, or an upstream.
func (q *query) lookup() {
	s := q.s
	q.zone = q.setup.zone(&q.client, q.asks.Name)
	q.wait.asked = s.now()
	now := q.wait.asked.Sub(s.started)
	if q.errand.is(forWarmUp) && q.lookupWarmed(now) {
		return
	}
	if !q.missed && q.zone.keeps(q.asks) != nil {
		switch e := q.zone.cache.Get(q.asks); {
		case e == nil:
		case e.Fresh(now):
			if q.errand == nil {
				s.stats.CacheHits.Add(1)
				if e.Hit(now) {
					q.zone.renewals.prefetch(q.zone, e, q.client.view, q.rate(), now)
				}
			}
			q.hit(e, now)
			return
		case e.Stale(now):
			if !q.overRate(now) {
				q.late(e, now)
			}
			return
		}
	}
	if !q.overRate(now) {
		q.miss()
	}
}

// hit answers with a fresh entry.
func (q *query) hit(e *cache.Entry, now time.Duration) {
	msg, base := e.Aged(now)
	q.set(msg, e.From, audit.CacheHit, e, q.s.at(base))
	q.wait.answered = q.wait.asked
	q.check()
}

// late answers with an entry whose time is over: by the upstream if it answers in time,
// else by the stale answer. No client waits again for an upstream that has failed.
func (q *query) late(e *cache.Entry, now time.Duration) {
	s := q.s
	q.wait.stale = e
	failed, due := e.Retry(now)
	if !due {
		q.giveStale()
		return
	}
	r := q.zone.renewals.renew(q.zone, e)
	if r == nil || failed {
		q.giveStale()
		return
	}
	epoch := q.suspend()
	s.after(staleWait, func() {
		if q.resume(epoch) {
			q.protect(q.giveStale)
		}
	})
	if over := r.wait(q, epoch); over && q.resume(epoch) { // it may have another owner by now
		q.renewed(r)
	}
}

// renewed continues when the renewal of the stale entry is over.
func (q *query) renewed(r *renewal) {
	if r.failed {
		q.giveStale()
		return
	}
	q.s.stats.CacheMisses.Add(1)
	if r.outcome.msg == nil {
		q.found.CopyFrom(&r.view)
	}
	q.arrived(r.outcome)
}

// giveStale answers with the stale entry.
func (q *query) giveStale() {
	s, e := q.s, q.wait.stale
	s.stats.CacheStale.Add(1)
	now := s.now()
	msg, base := e.AsStale(now.Sub(s.started))
	q.set(msg, e.From, audit.CacheStale, e, s.at(base))
	q.wait.answered = now
	q.check()
}

var errNoZone = errors.New("no forward covers the name")

// miss joins the call in flight for the same query, or makes one at the upstreams.
func (q *query) miss() {
	q.s.stats.CacheMisses.Add(1)
	q.s.step("miss")
	if q.zone == nil {
		q.arrived(outcome{err: errNoZone, at: q.wait.asked})
		return
	}
	q.join()
}

// join hands the query over to a call.
func (q *query) join() {
	batch := q.batch
	q.batch = nil
	if c, first := q.s.calls.join(q.asks, q.zone, q); first {
		c.start(batch)
	}
}

// answerView implements waiter.
func (q *query) answerView() *wire.AnswerView { return &q.found }

// complete implements waiter. Only UDP queries that are answered in place continue here;
// others continue on another goroutine, because the reader of the upstream's socket has further
// replies to read.
func (q *query) complete(o outcome) {
	if o.msg == nil && o.err == nil && q.overUDP() && q.plain && q.found.Fits(&q.view) {
		q.protect(func() { q.arrived(o) })
		return
	}
	q.do(func() { q.arrived(o) })
}

// arrived continues with the outcome of a call.
func (q *query) arrived(o outcome) {
	switch {
	case errors.Is(o.err, errFault):
		q.broken()
		return
	case errors.Is(o.err, errAbandoned):
		q.join()
		return
	}
	q.set(o.msg, o.from, audit.CacheNone, o.entry, o.at)
	q.wait.answered = o.at
	if q.errand.is(forWarmUp) {
		q.keepWarmed(o.err)
	}
	if o.err != nil {
		q.heard()
		q.fail(o.err.Error())
		return
	}
	q.check()
}

// heard adds the wait for the answer to the query's time.
func (q *query) heard() {
	if q.client.view != nil && q.how != audit.CacheHit {
		q.wait.spent.Heard(q.wait.answered.Sub(q.wait.asked))
	}
}

// answerMessage returns the answer as a message, nil without one.
func (q *query) answerMessage() *dns.Msg {
	if q.msg == nil && len(q.found.Message) > 0 {
		m := new(dns.Msg)
		if m.Unpack(q.found.Message) != nil { // it was read in place
			m.Rcode = dns.RcodeServerFailure
		}
		q.msg = m
	}
	return q.msg
}
