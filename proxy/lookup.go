package proxy

import (
	"errors"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/cache"
	"github.com/namegate/namegate/proxy/corefile"
	"github.com/namegate/namegate/proxy/wire"
)

// staleWait is how long a client waits for the upstream when there is a stale answer for
// it (RFC 8767 §5: 1.8 seconds, below the least time-out of clients).
const staleWait = 1800 * time.Millisecond

// cachingResolver finds answers by one configuration: in the cache, at an identical call
// in flight, or at an upstream.
type cachingResolver struct {
	s        *Server
	config   *corefile.Config
	zones    []zone // the longest names first
	cache    *cache.Cache
	warmed   *cache.Cache // the answers that warm-ups got
	calls    *calls
	renewals *renewals
	cookies  cookies
	host     netip.Addr // the resolver of the host; the zero address: it answers others' queries
}

// begin makes it answer.
func (r *cachingResolver) begin() {
	r.calls = &calls{r: r, all: map[wire.Query]*call{}}
	r.cookies.r = r
	r.renewals = &renewals{r: r, all: map[*cache.Entry]*renewal{}}
}

// zone is one zone of the configuration, and how its upstreams are asked.
type zone struct {
	settings  *corefile.Zone
	upstreams upstreams
}

// zone returns the longest zone of a name, nil if none covers it.
func (r *cachingResolver) zone(n fqdn.Name) *zone {
	for i := range r.zones {
		if n.HasSuffix(r.zones[i].settings.Name) {
			return &r.zones[i]
		}
	}
	return nil
}

// keeps returns the zone by which the answer to the query is kept, nil if it is not.
func (z *zone) keeps(q wire.Query) *corefile.Zone {
	if z == nil {
		return nil
	}
	return cache.Zone(z.settings, q)
}

// touch notes that the entry was asked for, and renews it before it ends if it is asked
// for often: that is a query for the pod of the view, nil for none, which the rate limits.
func (r *cachingResolver) touch(e *cache.Entry, v *policy.View, rate policy.ZoneRate, now time.Duration) {
	if e.Hit(now) && (v == nil || r.s.inRate(v, rate, now)) {
		r.renewals.prefetch(e)
	}
}

// lookup finds what answers: the cache, an identical call in flight, or an upstream.
func (q *query) lookup() {
	s, r := q.s, q.resolver()
	q.zone = r.zone(q.asks.Name)
	q.wait.asked = s.now()
	now := q.wait.asked.Sub(s.started)
	if q.origin == fromWarmUp && q.lookupWarmed(now) {
		return
	}
	if !q.missed && q.zone.keeps(q.asks) != nil {
		switch e := r.cache.Get(q.asks); {
		case e == nil:
		case e.Fresh(now):
			if q.origin.client() {
				s.stats.CacheHits.Add(1)
				r.touch(e, q.client.view, q.rate(), now)
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
	r := q.resolver().renewals.renew(e)
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
	o := &r.outcome
	if r.failed {
		q.giveStale()
		return
	}
	q.s.stats.CacheMisses.Add(1)
	if o.msg == nil {
		q.found.CopyFrom(&r.view)
	}
	q.arrived(o)
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
		q.arrived(&outcome{err: errNoZone})
		return
	}
	q.join()
}

// join hands the query over to a call.
func (q *query) join() {
	batch, z, calls := q.batch, q.zone, q.resolver().calls
	q.batch = nil
	if c, first := calls.join(q.asks, z, q); first {
		c.start(batch)
	}
}

// answerView implements waiter.
func (q *query) answerView() *wire.AnswerView { return &q.found }

// complete implements waiter. Only UDP queries that are answered in place continue here;
// others are for a worker, because the reader of the upstream's socket has further
// replies to read.
func (q *query) complete(o *outcome) {
	if o.msg == nil && o.err == nil && q.origin == fromUDP && q.plain && q.found.Fits(&q.view) {
		q.protect(func() { q.arrived(o) })
		return
	}
	q.s.workers.do(func() { q.protect(func() { q.arrived(o) }) })
}

// arrived continues with the outcome of a call.
func (q *query) arrived(o *outcome) {
	now := q.s.now()
	switch {
	case errors.Is(o.err, errFault):
		q.broken()
		return
	case errors.Is(o.err, errAbandoned):
		q.join()
		return
	}
	q.set(o.msg, o.from, audit.CacheNone, o.entry, now)
	q.wait.answered = now
	if q.origin == fromWarmUp {
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
