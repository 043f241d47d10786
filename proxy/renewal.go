package proxy

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
)

const (
	// staleWait is how long an asker waits for the upstream when there is a stale
	// answer for it (RFC 8767 §5: 1.8 seconds, below the least time-out of clients).
	staleWait = 1800 * time.Millisecond
	// staleTTL is what is told of how long a stale answer holds, in seconds (RFC
	// 8767 §4).
	staleTTL = 30
	// staleRest is how long after a failure the upstream is not asked again for a
	// stale answer.
	staleRest = 5 * time.Second
	// renewalsMost bounds the renewals that are under way: no client's place does,
	// since nobody has to wait for one.
	renewalsMost = 512
)

var errNoBetter = errors.New("the upstream has no answer")

// renewal is the asking anew for what is kept, by one for all.
type renewal struct {
	done chan struct{}
	got  found
	err  error
}

// renew asks for what is kept anew, if nobody does, and calls then if there is a
// better answer. A failure makes the entry rest. It returns nil if too many are
// under way.
func (k *keeper) renew(e *entry, then func()) *renewal {
	if k.renewals.Add(1) > renewalsMost {
		k.renewals.Add(-1)
		return e.renewal.Load()
	}
	r := &renewal{done: make(chan struct{}), err: errAbandoned}
	for !e.renewal.CompareAndSwap(nil, r) {
		if other := e.renewal.Load(); other != nil {
			k.renewals.Add(-1)
			return other
		}
	}
	k.s.crew.do(func() {
		defer k.renewals.Add(-1)
		defer e.renewal.Store(nil)
		defer k.s.net("a renewal")
		if k.renewed(e, r) && then != nil {
			then()
		}
	})
	return r
}

// renewed asks, and tells whether there is a better answer.
func (k *keeper) renewed(e *entry, r *renewal) bool {
	defer close(r.done)
	better := false
	defer func() {
		if !better { // also after a fault
			e.rest.Store(int64(k.s.elapsed() + staleRest))
		}
	}()
	k.s.step("renewal")
	r.got, r.err = k.next.resolve(e.query)
	if r.err == nil && upstream.Passed(r.got.msg.Rcode) {
		r.err = errNoBetter
	}
	k.s.step("renewed")
	if better = r.err == nil; better {
		k.cache.replaced(e)
	}
	return better
}

// late answers with what is kept and over: by the upstream if it answers in
// time, else by the stale answer. Nobody waits again for an upstream that has failed.
func (k *keeper) late(a wire.Query, e *entry, now time.Duration) (answer, error) {
	rest := time.Duration(e.rest.Load())
	if now < rest {
		return k.stale(a, e, now), nil
	}
	if r := k.renew(e, nil); r != nil && rest == 0 {
		over := make(chan struct{})
		stop := k.s.waiting.after(staleWait, func() { close(over) })
		defer stop()
		select {
		case <-r.done:
			switch {
			case r.err != nil:
			case !r.got.isFor(a):
				return k.fetch(a) // the name exists by now
			default:
				k.s.stats.CacheMisses.Add(1)
				return answer{found: as(a, r.got), base: k.s.now()}, nil
			}
		case <-over:
		}
	}
	return k.stale(a, e, k.s.elapsed()), nil
}

// stale is what was kept, for want of a better. Its base moves in steps, so that
// an outage does not write each hit to the kernel.
func (k *keeper) stale(a wire.Query, e *entry, now time.Duration) answer {
	k.s.stats.CacheStale.Add(1)
	steps := (max(now-e.end, 0) + staleRest - 1) / staleRest
	m := retold(e.message(), func(uint32) uint32 { return staleTTL })
	explain(m)
	return answer{found: as(a, found{m, e.from}), base: k.s.at(e.end + steps*staleRest), how: audit.CacheStale, kept: e}
}

// explain adds to a message of our own that the answer is stale (RFC 8914 §4.4, §4.20).
func explain(m *dns.Msg) {
	opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
	code := dns.ExtendedErrorCodeStaleAnswer
	if m.Rcode == dns.RcodeNameError {
		code = dns.ExtendedErrorCodeStaleNXDOMAINAnswer
	}
	opt.Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: code}}
	extra := []dns.RR{opt}
	for _, rr := range m.Extra {
		if rr.Header().Rrtype != dns.TypeOPT {
			extra = append(extra, rr)
		}
	}
	m.Extra = extra
}

// isFor tells whether what was found answers the query, or is true of every type.
func (f found) isFor(a wire.Query) bool {
	return len(f.msg.Question) == 1 && f.msg.Question[0].Qtype == a.Type || nowhere(f.msg)
}

// as makes an answer to one type's question that to another's: that the name
// does not exist is true of all.
func as(a wire.Query, f found) found {
	if len(f.msg.Question) != 1 || f.msg.Question[0].Qtype == a.Type {
		return f
	}
	m := *f.msg
	m.Question = []dns.Question{{Name: f.msg.Question[0].Name, Qtype: a.Type, Qclass: a.Class}}
	return found{&m, f.from}
}

// heat counts how often an entry is asked for, without a gap.
type heat struct {
	count atomic.Int32
	last  atomic.Int64
}

// beat counts one, up to most, and tells whether it is that; a gap begins anew.
func (h *heat) beat(now, within time.Duration, most int) bool {
	if last := h.last.Swap(int64(now)); int64(now)-last > int64(within) {
		h.count.Store(0)
	}
	return int(h.count.Load()) >= most || int(h.count.Add(1)) >= most
}

// touch notes that the entry was asked for, and renews it before it ends if it
// is hot.
func (k *keeper) touch(e *entry, now time.Duration) {
	p := e.zone.Cache.Prefetch
	if p.Amount == 0 || !e.heat.beat(now, p.Within, p.Amount) {
		return
	}
	if (e.end-now)*100 > (e.end-e.born)*time.Duration(p.Percent) || int64(now) < e.rest.Load() || e.renewal.Load() != nil {
		return
	}
	if k.renew(e, func() { k.regrant(e) }) != nil {
		k.s.stats.Prefetches.Add(1)
	}
}

// asked notes which pod asked for what is kept.
func (c *cache) asked(e *entry, p policy.PodRef) {
	s := c.shardOf(e)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.askers == nil {
		e.askers = map[policy.PodRef]bool{}
	}
	if len(e.askers) < askersMost && !e.askers[p] && s.has(e) {
		e.askers[p] = true
		s.grow(e, askerBytes)
	}
}

const (
	// askersMost bounds the pods for which a prefetched answer is granted; a node
	// runs 250 and seldom more.
	askersMost = 512
	askerBytes = 100
)

// regrant grants what has been prefetched to the pods that asked for what it
// succeeds, and to no others.
func (k *keeper) regrant(old *entry) {
	s := k.cache.shardOf(old)
	s.mu.Lock()
	pods := make([]policy.PodRef, 0, len(old.askers))
	for p := range old.askers {
		pods = append(pods, p)
	}
	s.mu.Unlock()
	if k.cache.get(old.query, k.s.elapsed()) == nil {
		return // its like is not kept any more
	}
	snap := k.s.snapshot.Load()
	for _, p := range pods {
		v := snap.ViewOf(p)
		if v == nil || !v.Enforced {
			continue
		}
		k.s.regrant(v, snap, old.query)
	}
}
