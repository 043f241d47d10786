package proxy

import (
	"errors"
	"sync"

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
	r   *cachingResolver
	mu  sync.Mutex
	all map[*cache.Entry]*renewal
}

// renewal is the renewal of one entry, for all queries that wait for it.
type renewal struct {
	of       *renewals
	entry    *cache.Entry
	prefetch bool // the better answer is granted to the pods that asked for the entry
	view     wire.AnswerView
	snap     *policy.Snapshot
	pods     []policy.PodRef // to which it is to be granted, one after the other

	over    bool // the lock of renewals, and what follows
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
func (f *renewals) renew(e *cache.Entry) *renewal {
	n, _ := f.begin(e, false)
	return n
}

// prefetch renews the entry if no renewal does, and has a better answer granted to the
// pods that asked for it.
func (f *renewals) prefetch(e *cache.Entry) {
	if _, first := f.begin(e, true); first {
		f.r.s.stats.Prefetches.Add(1)
	}
}

func (f *renewals) begin(e *cache.Entry, prefetch bool) (n *renewal, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n = f.all[e]; n != nil || len(f.all) >= maxRenewals {
		return n, false
	}
	n = &renewal{of: f, entry: e, prefetch: prefetch}
	f.all[e] = n
	f.r.s.workers.do(n.run)
	return n, true
}

// inFlight returns how many renewals there are.
func (f *renewals) inFlight() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all)
}

func (n *renewal) run() {
	r := n.of.r
	ok := r.s.protect("a renewal", func() {
		r.s.step("renewal")
		a := n.entry.Query
		if c, first := r.calls.join(a, r.zone(a.Name), n); first {
			c.start(nil)
		}
	})
	if !ok {
		n.complete(&outcome{err: errFault})
	}
}

// wait has the query resumed when the renewal is over; true: it is over already.
func (n *renewal) wait(q *query, epoch uint64) (over bool) {
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	if !n.over {
		n.waiters = append(n.waiters, renewalWaiter{q, epoch})
	}
	return n.over
}

// answerView implements waiter.
func (n *renewal) answerView() *wire.AnswerView { return &n.view }

// complete implements waiter.
func (n *renewal) complete(o *outcome) {
	s := n.of.r.s
	if errors.Is(o.err, errAbandoned) {
		s.workers.do(n.run)
		return
	}
	if !s.protect("a renewal", func() { s.step("renewed") }) {
		o = &outcome{err: errFault}
	}
	failed := o.err != nil || o.msg != nil && upstream.Passed(o.msg.Rcode)
	if failed {
		n.entry.Failed(s.elapsed())
	} else {
		n.of.r.cache.Remove(n.entry)
	}
	n.of.mu.Lock()
	n.over, n.outcome, n.failed = true, *o, failed
	waiters := n.waiters
	n.waiters = nil
	n.of.mu.Unlock()
	for _, w := range waiters {
		if w.q.resume(w.epoch) {
			s.workers.do(func() { w.q.protect(func() { w.q.renewed(n) }) })
		}
	}
	if failed || !n.prefetch {
		n.end()
		return
	}
	s.workers.do(n.next)
}

// next has the better answer granted to the next of the pods that asked for the entry,
// and to no others.
func (n *renewal) next() {
	if !n.of.r.s.protect("a grant of a prefetched answer", n.grant) {
		n.end()
	}
}

// grant is next without a net. All pods at a time would leave no room in the kernel's queue
// for clients' grants.
func (n *renewal) grant() {
	r := n.of.r
	if n.snap == nil && r.cache.Get(n.entry.Query) != nil { // else the answer is not kept any more
		n.snap, n.pods = r.s.snapshot.Load(), r.cache.Clients(n.entry)
	}
	for len(n.pods) > 0 {
		v := n.snap.ViewOf(n.pods[0])
		if n.pods = n.pods[1:]; v != nil && v.InForce() {
			r.s.askAt(r.host, v, n.snap, n.entry.Query, fromPrefetch, n)
			return
		}
	}
	n.end()
}

// reply implements replier: no client waits.
func (n *renewal) reply([]byte, bool) {}

// done implements replier.
func (n *renewal) done(*query) { n.of.r.s.workers.do(n.next) }

// end ends the renewal.
func (n *renewal) end() {
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	delete(n.of.all, n.entry)
}
