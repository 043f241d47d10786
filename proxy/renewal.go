package proxy

import (
	"errors"
	"sync"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/cache"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
)

// maxRenewals bounds the renewals in flight: no client's slot does, since no client has
// to wait for one.
const maxRenewals = 512

// renewals are the calls in flight for cached answers.
type renewals struct {
	s   *Server
	mu  sync.Mutex
	all map[*cache.Entry]*renewal
}

// renewal is the renewal of one entry, for all queries that wait for it.
type renewal struct {
	zone     *zone
	entry    *cache.Entry
	prefetch bool // the better answer is granted to the pods that asked for the entry
	view     wire.AnswerView
	snap     *policy.Snapshot
	pods     []policy.PodRef // to which it is to be granted, one after the other

	over    bool // the lock of the zone's renewals, and what follows
	outcome outcome
	failed  bool
	waiters []renewalWaiter
}

// renewalWaiter is a query that waits for a renewal, and until when.
type renewalWaiter struct {
	q     *query
	epoch uint64
}

// renew renews the entry, unless it is being renewed. It returns nil if too many renewals
// are in flight.
func (f *renewals) renew(z *zone, e *cache.Entry) *renewal {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.all[e]; n != nil || len(f.all) >= maxRenewals {
		return n
	}
	return f.begin(z, e, false)
}

// prefetch renews the entry for the pod of the view, nil for none, if no renewal does and the rate
// allows a query, and has a better answer granted to the pods that asked for the entry.
func (f *renewals) prefetch(z *zone, e *cache.Entry, v *policy.View, rate policy.ZoneRate, now time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all[e] == nil && len(f.all) < maxRenewals && (v == nil || f.s.inRate(v, rate, now)) {
		f.s.stats.Prefetches.Add(1)
		f.begin(z, e, true)
	}
}

// begin begins a renewal; the caller holds the lock.
func (f *renewals) begin(z *zone, e *cache.Entry, prefetch bool) *renewal {
	n := &renewal{zone: z, entry: e, prefetch: prefetch}
	f.all[e] = n
	f.s.do(n.run)
	return n
}

func (n *renewal) run() {
	s := n.zone.renewals.s
	ok := s.protect("a renewal", func() {
		s.step("renewal")
		if c, first := s.calls.join(n.entry.Query, n.zone, n); first {
			c.start(nil)
		}
	})
	if !ok {
		n.complete(outcome{err: errFault})
	}
}

// wait has the query resumed when the renewal is over; true: it is over already.
func (n *renewal) wait(q *query, epoch uint64) (over bool) {
	f := &n.zone.renewals
	f.mu.Lock()
	defer f.mu.Unlock()
	if !n.over {
		n.waiters = append(n.waiters, renewalWaiter{q, epoch})
	}
	return n.over
}

// answerView implements waiter.
func (n *renewal) answerView() *wire.AnswerView { return &n.view }

// complete implements waiter.
func (n *renewal) complete(o outcome) {
	f := &n.zone.renewals
	s := f.s
	if errors.Is(o.err, errAbandoned) {
		s.do(n.run)
		return
	}
	if !s.protect("a renewal", func() { s.step("renewed") }) {
		o = outcome{err: errFault}
	}
	failed := o.err != nil || o.msg != nil && upstream.Passed(o.msg.Rcode)
	if failed {
		n.entry.Failed(s.elapsed())
	} else {
		n.zone.cache.Remove(n.entry)
	}
	f.mu.Lock()
	n.over, n.outcome, n.failed = true, o, failed
	waiters := n.waiters
	n.waiters = nil
	f.mu.Unlock()
	for _, w := range waiters {
		if w.q.resume(w.epoch) {
			w.q.do(func() { w.q.renewed(n) })
		}
	}
	if failed || !n.prefetch {
		n.end()
		return
	}
	s.do(n.next)
}

// next has the better answer granted to the next of the pods that asked for the entry,
// and to no others.
func (n *renewal) next() {
	if !n.zone.renewals.s.protect("a grant of a prefetched answer", n.grant) {
		n.end()
	}
}

// grant is next without a net. All pods at a time would leave no room in the kernel's queue
// for clients' grants.
func (n *renewal) grant() {
	s, z := n.zone.renewals.s, n.zone
	if n.snap == nil && z.cache.Get(n.entry.Query) != nil { // else the answer is not kept any more
		n.snap, n.pods = s.snapshot.Load(), z.cache.Clients(n.entry)
	}
	for len(n.pods) > 0 {
		v := n.snap.ViewOf(n.pods[0])
		if n.pods = n.pods[1:]; v != nil && v.InForce() {
			e := &errand{purpose: forPrefetch, then: func(*query) { s.do(n.next) }}
			e.run(s, z.host, v, n.snap, n.entry.Query)
			return
		}
	}
	n.end()
}

// end ends the renewal.
func (n *renewal) end() {
	f := &n.zone.renewals
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, n.entry)
}
