package proxy

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/answer"
	"github.com/namegate/namegate/proxy/cache"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
)

const (
	// warmAtOnce bounds the queries in flight of one pod's warm-up. The bound is per pod,
	// so that names without an answer do not delay other pods.
	warmAtOnce = 16
	// warmAgain is how long after a failure, or after the answer that a name has no address,
	// warm-ups do not ask again.
	warmAgain = 5 * time.Second
	// warmEntries and warmBytes bound the answers that warm-ups remember.
	warmEntries = 8192
	warmBytes   = 4 << 20
)

// Warm is WarmNames for all exact names of views.
func (s *Server) Warm(ctx context.Context, views []*policy.View) error {
	failed := make([]error, len(views))
	var pods sync.WaitGroup
	for i, v := range views {
		pods.Go(func() { failed[i] = s.WarmNames(ctx, v, v.ExactNames()) })
	}
	pods.Wait()
	return errors.Join(failed...)
}

// ForgetWarmUps has the next warm-ups ask for every name again: others answered the pods
// meanwhile, maybe with other addresses than the earlier warm-ups got.
func (s *Server) ForgetWarmUps() { s.setup.Load().resolver.warmed.Clear() }

// WarmNames queries names of a view, A and AAAA, and grants the answers, as if the pod
// had asked. So a pod that got its answers elsewhere, before it was selected or while no
// agent served, keeps the names it uses. It returns when all are granted, with the
// failures joined, or when ctx has ended; queries in flight then end by themselves. A
// name is not queried again while the answer to an earlier warm-up is valid.
func (s *Server) WarmNames(ctx context.Context, v *policy.View, names []fqdn.Name) error {
	if !v.Enforced {
		return nil
	}
	w := &warmUp{s: s, ctx: ctx, view: v, snap: s.snapshot.Load(), names: names, results: make(chan error, 2*len(names))}
	for range min(warmAtOnce, 2*len(names)) {
		w.next()
	}
	var failed error
	for range 2 * len(names) {
		select {
		case err := <-w.results:
			failed = errors.Join(failed, err)
		case <-ctx.Done():
			return errors.Join(failed, ctx.Err())
		}
	}
	return failed
}

// warmUp is the replier of the queries of one pod's warm-up.
type warmUp struct {
	s       *Server
	ctx     context.Context
	view    *policy.View
	snap    *policy.Snapshot
	names   []fqdn.Name
	asked   atomic.Int64
	results chan error // has room for all
}

// next asks the next question, if there is one.
func (w *warmUp) next() {
	i := int(w.asked.Add(1)) - 1
	if i >= 2*len(w.names) || w.ctx.Err() != nil {
		return
	}
	question := wire.Question{Name: w.names[i/2], Type: [2]uint16{dns.TypeA, dns.TypeAAAA}[i%2], Class: dns.ClassINET}
	w.s.ask(w.view, w.snap, wire.Query{Question: question, Flags: wire.RD}, fromWarmUp, w)
}

// reply implements replier: no client waits.
func (w *warmUp) reply([]byte, bool) {}

// done implements replier.
func (w *warmUp) done(q *query) {
	var err error
	if q.rec.Verdict == audit.Failed {
		err = errors.New("resolve " + q.question.Name.String() + " for pod " + w.view.Pod.String() + ": " + q.rec.Error)
	}
	w.results <- err
	w.s.workers.do(w.next)
}

// ask runs a query that no client sent, for the pod of the view.
func (s *Server) ask(v *policy.View, snap *policy.Snapshot, a wire.Query, from origin, to replier) {
	packet := a.Pack(0)
	if a.Flags&wire.DO == 0 {
		packet = a.PackWithoutEDNS(0)
	}
	c := identity{known: true, view: v, snap: snap, version: s.version.Load()}
	if len(v.Pod.IPs) > 0 {
		c.addr = v.Pod.IPs[0]
	}
	s.newQuery(packet, from, &c, to, s.now()).run()
}

// lookupWarmed answers a warm-up with the answer that an earlier one got. An answer that
// is kept for clients comes from there, so that the pod is noted.
func (q *query) lookupWarmed(now time.Duration) bool {
	r := q.setup.resolver
	e := r.warmed.Get(q.asks, now)
	if e == nil || !e.Fresh(now) {
		return false
	}
	if q.zone.keeps(q.asks) != nil {
		if kept := r.cache.Get(q.asks, now); kept != nil && kept.Fresh(now) {
			return false
		}
	}
	q.hit(e, now)
	return true
}

// keepWarmed keeps the answer to a warm-up for other warm-ups, even if it is not cached
// for clients: of a zone without a cache, and a failure.
func (q *query) keepWarmed(failed error) {
	m, holds := q.answerMessage(), warmAgain
	switch {
	case failed != nil:
		m = new(dns.Msg)
		m.SetRcode(&dns.Msg{Question: []dns.Question{{Name: answer.Presentation(q.asks.Name), Qtype: q.asks.Type, Qclass: q.asks.Class}}}, dns.RcodeServerFailure)
	case !upstream.Passed(m.Rcode) && !answer.IsNegative(q.asks.Question, m):
		holds = time.Duration(answer.MinTTL(m)) * time.Second
	}
	packed, err := m.Copy().Pack() // which writes into the OPT record of a message, and this is shared
	if err != nil || holds == 0 {
		return
	}
	q.setup.resolver.warmed.Put(cache.NewEntry(q.asks, packed, q.from, q.s.elapsed(), holds, failed == nil && answer.IsNXDomain(m)))
}
