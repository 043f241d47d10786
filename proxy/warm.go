package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
)

const (
	// warmAtOnce bounds the questions that a warm-up has under way for one pod. The bound
	// is each pod's own: names without an answer must not delay those of other pods.
	warmAtOnce = 16
	// warmAgain is how long after a failure, or after the word that a name has no address,
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
func (s *Server) ForgetWarmUps() { s.warmed.clear() }

// WarmNames asks for names of a view, A and AAAA, and grants what the answers say, as if
// the pod had asked: a pod that was answered by others, before it was selected or while no
// agent served, keeps the names it has in use. It returns when all are granted, with the
// failures joined, or when ctx has ended; what is under way then goes on by itself. A name
// is not asked for again while the answer to an earlier warm-up is good.
func (s *Server) WarmNames(ctx context.Context, v *policy.View, names []fqdn.Name) error {
	if !v.Enforced {
		return nil
	}
	snap := s.snapshot.Load()
	questions := make(chan wire.Question, 2*len(names))
	results := make(chan error, cap(questions))
	for _, n := range names {
		questions <- wire.Question{Name: n, Type: dns.TypeA, Class: dns.ClassINET}
		questions <- wire.Question{Name: n, Type: dns.TypeAAAA, Class: dns.ClassINET}
	}
	close(questions)
	for range min(warmAtOnce, cap(questions)) {
		go func() {
			for q := range questions {
				if ctx.Err() != nil {
					return
				}
				results <- s.warm(v, snap, q)
			}
		}()
	}
	var failed error
	for range cap(questions) {
		select {
		case err := <-results:
			failed = errors.Join(failed, err)
		case <-ctx.Done():
			return errors.Join(failed, ctx.Err())
		}
	}
	return failed
}

// warm takes one question through decision, upstream, check and grant.
func (s *Server) warm(v *policy.View, snap *policy.Snapshot, q wire.Question) (err error) {
	defer func() {
		if r := recover(); r != nil {
			s.fault("the resolution of an exact name", r)
			err = fmt.Errorf("resolve %s for pod %s: a fault of the proxy, see its log", q.Name, v.Pod)
		}
	}()
	t := s.turnFor(v, snap, wire.Query{Question: q, Flags: wire.RD})
	t.warms = true
	t.run()
	if t.rec.Verdict == audit.Failed {
		return errors.New("resolve " + q.Name.String() + " for pod " + v.Pod.String() + ": " + t.rec.Error)
	}
	return nil
}

// ask returns the answer to a query, for a warm-up one that an earlier warm-up was given.
func (t *turn) ask(a wire.Query) (answer, error) {
	if t.warms {
		return t.setup.keeper.warm(a)
	}
	return t.setup.keeper.answerGiven(a, t.given, t.quiet)
}

// warm is answer for warm-ups, which remember also what is not kept for clients: answers
// of a zone without a cache, and failures.
func (k *keeper) warm(a wire.Query) (answer, error) {
	now := k.s.elapsed()
	if e := k.warmed.get(a, now); e != nil && e.fresh(now) && !k.keepsFresh(a, now) {
		return k.aged(a, e, now), nil
	}
	got, err := k.answer(a, true)
	m, holds := got.msg, warmAgain
	switch {
	case err != nil:
		m = new(dns.Msg)
		m.SetRcode(&dns.Msg{Question: []dns.Question{{Name: presentation(a.Name), Qtype: a.Type, Qclass: a.Class}}}, dns.RcodeServerFailure)
	case !upstream.Passed(m.Rcode) && !denies(a.Question, m):
		holds = time.Duration(leastTTL(m)) * time.Second
	}
	wire, unpacked := m.Pack()
	if unpacked != nil || holds == 0 {
		return got, err
	}
	born := k.s.elapsed()
	k.warmed.put(&entry{wire: wire, from: got.from, query: a, born: born, end: born + holds, gone: born + holds, nowhere: err == nil && nowhere(m)})
	return got, err
}

// keepsFresh tells whether the answer is kept for clients, whose pods are noted then.
func (k *keeper) keepsFresh(a wire.Query, now time.Duration) bool {
	if keeps(k.config, a) == nil {
		return false
	}
	e := k.cache.get(a, now)
	return e != nil && e.fresh(now)
}

// turnFor is the turn of a question that nobody sent.
func (s *Server) turnFor(v *policy.View, snap *policy.Snapshot, a wire.Query) *turn {
	query := new(dns.Msg)
	query.SetQuestion(presentation(a.Name), a.Type)
	query.RecursionDesired, query.CheckingDisabled, query.AuthenticatedData = a.Flags&wire.RD != 0, a.Flags&wire.CD != 0, a.Flags&wire.AD != 0
	if a.Flags&wire.DO != 0 {
		query.SetEdns0(wire.AdvertisedSize, true)
	}
	return &turn{s: s, setup: s.setup.Load(), view: v, snap: snap, query: query, q: a.Question}
}

// regrant has the pod granted what its question's answer says now, and logs that. A
// fault costs no other pod its grant.
func (s *Server) regrant(v *policy.View, snap *policy.Snapshot, a wire.Query) {
	defer s.net("a grant of a prefetched answer")
	s.step("regrant")
	started := s.now()
	t := s.turnFor(v, snap, a)
	t.rec = audit.Record{Pod: v.Pod.PodRef, Workload: v.Workload, Name: a.Name, Type: a.Type, Class: a.Class}
	if len(v.Pod.IPs) > 0 {
		t.rec.Address = v.Pod.IPs[0]
	}
	t.quiet = true
	r := t.run()
	t.rec.Cache = audit.CachePrefetch
	t.finish(r, started)
}
