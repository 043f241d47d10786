package proxy

import (
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/answer"
	"github.com/namegate/namegate/proxy/cache"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/warm"
	"github.com/namegate/namegate/proxy/wire"
)

// warmEntries and warmBytes bound the answers that warm-ups remember.
const (
	warmEntries = 8192
	warmBytes   = 4 << 20
)

// purpose is why the proxy asks a question by itself.
type purpose uint8

const (
	forPrefetch purpose = iota // of an answer that is renewed before it ends
	forWarmUp
	forUse // of a name whose addresses are in use and end
)

// errand is what is special about a query that no client sent, and its replier.
type errand struct {
	purpose purpose
	early   time.Duration // of warm.Question
	held    []netip.Addr  // of warm.Question
	then    func(*query)  // is called when the query is over, and must not block
}

// is tells whether there is an errand of the purpose.
func (e *errand) is(p purpose) bool { return e != nil && e.purpose == p }

// stream implements replier.
func (e *errand) stream() bool { return false }

// reply implements replier: no client waits.
func (e *errand) reply([]byte, bool) {}

// done implements replier.
func (e *errand) done(q *query) { e.then(q) }

// run asks a question for the subject of a view: at a resolver of the host, which is none for a pod.
func (e *errand) run(s *Server, host netip.Addr, v *policy.View, snap *policy.Snapshot, a wire.Query) {
	packet := a.Pack(0)
	if a.Flags&wire.DO == 0 {
		packet = a.PackWithoutEDNS(0)
	}
	c := identity{known: true, view: v, snap: snap, host: host, version: s.version.Load()}
	if len(v.Pod.IPs) > 0 {
		c.addr = v.Pod.IPs[0]
	}
	q := s.newQuery(packet, &c, e, s.now())
	q.errand = e
	q.run()
}

// errands is how package warm asks.
func (s *Server) errands() *warm.Proxy {
	return &warm.Proxy{Snapshot: s.snapshot.Load, Ask: s.ask, Passes: s.passes, Kept: s.kept, Do: s.do, Protect: s.protect, Elapsed: s.elapsed,
		After: func(d time.Duration, job func()) func() bool { return s.after(d, job) }}
}

// ask asks a question of package warm: for the node at any resolver of the host.
func (s *Server) ask(of warm.Question, then func(warm.Result)) {
	host, purpose := netip.Addr{}, forWarmUp
	if of.View.Node != nil {
		host = everyResolver
	}
	if of.InUse {
		purpose = forUse
		s.stats.UseQueries.Add(1)
	}
	e := &errand{purpose: purpose, early: of.Early, held: of.Held, then: func(q *query) {
		r := warm.Result{Verdict: q.rec.Verdict, Error: q.rec.Error}
		for _, k := range q.kept {
			r.Kept = append(r.Kept, k.Addr)
		}
		then(r)
	}}
	e.run(s, host, of.View, of.Snap, wire.Query{Question: wire.Question{Name: of.Name, Type: of.Type, Class: dns.ClassINET}, Flags: wire.RD})
}

// passes tells whether the guard lets a name open an address, for the subject of the view.
func (s *Server) passes(v *policy.View, snap *policy.Snapshot, n fqdn.Name, addr netip.Addr) bool {
	return s.setup.Load().guardFor(v != nil && v.Node != nil).Blocked(n, addr, snap) == ""
}

// kept counts and logs addresses that stay open without an answer.
func (s *Server) kept(r audit.Record, addresses int) {
	s.stats.AddressesKept.Add(uint64(addresses))
	s.stats.Verdicts.Add(audit.Renewed, r.Type)
	if r.Time = s.now(); s.log != nil {
		s.protect("the log of a name in use", func() { s.log.Write(r) })
	}
}

// ForgetWarmUps has the next warm-ups ask for every name again: others answered the pods
// meanwhile, maybe with other addresses than the earlier warm-ups got.
func (s *Server) ForgetWarmUps() {
	for _, a := range s.setup.Load().answers {
		a.warmed.Clear()
	}
}

// lookupWarmed answers a warm-up with the answer that an earlier one got. An answer that
// is kept for clients comes from there, so that the pod is noted.
func (q *query) lookupWarmed(now time.Duration) bool {
	if q.zone == nil {
		return false
	}
	e := q.zone.warmed.Get(q.asks)
	if e == nil || !e.Fresh(now+q.errand.early) {
		return false
	}
	if q.zone.keeps(q.asks) != nil {
		if kept := q.zone.cache.Get(q.asks); kept != nil && kept.Fresh(now) {
			return false
		}
	}
	q.hit(e, now)
	return true
}

// keepWarmed keeps the answer to a warm-up for other warm-ups, even if it is not cached
// for clients: of a zone without a cache, and a failure.
func (q *query) keepWarmed(failed error) {
	m, holds := q.answerMessage(), warm.Again
	switch {
	case failed != nil:
		m = new(dns.Msg)
		m.SetRcode(&dns.Msg{Question: []dns.Question{{Name: answer.Presentation(q.asks.Name), Qtype: q.asks.Type, Qclass: q.asks.Class}}}, dns.RcodeServerFailure)
	case !upstream.Passed(m.Rcode) && !answer.IsNegative(q.asks.Question, m):
		holds = time.Duration(answer.MinTTL(m)) * time.Second
	}
	packed, err := m.Copy().Pack() // which writes into the OPT record of a message, and this is shared
	if err != nil || holds == 0 || q.zone == nil {
		return
	}
	q.zone.warmed.Put(cache.NewEntry(q.asks, packed, q.from, q.s.elapsed(), holds))
}

// retain leaves the addresses of an answer that are open for the name already.
func (q *query) retain() {
	kept, free := q.kept[:0], q.free[:0]
	for i, a := range q.kept {
		if slices.Contains(q.errand.held, a.Addr) {
			kept = append(kept, a)
			if i < len(q.free) {
				free = append(free, q.free[i])
			}
		}
	}
	if q.kept, q.free = kept, free; len(kept) > 0 && q.rec.Verdict == audit.Allowed {
		q.rec.Verdict, q.rec.Renewed = audit.Renewed, audit.ByAnswer
	}
}
