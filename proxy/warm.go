package proxy

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
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
	// coldPause is how long after a warm-up the names that failed are asked for again. The
	// pause doubles with each failure, up to coldPauseMost.
	coldPause     = time.Second
	coldPauseMost = time.Minute
	// warmEntries and warmBytes bound the answers that warm-ups remember.
	warmEntries = 8192
	warmBytes   = 4 << 20
)

// Warm is WarmNames for all exact names of views.
func (s *Server) Warm(ctx context.Context, views []*policy.View) error {
	failed := make([]error, len(views))
	var pods sync.WaitGroup
	for i, v := range views {
		pods.Go(func() { failed[i] = s.WarmNames(ctx, v, slices.Concat(v.ExactNames())) })
	}
	pods.Wait()
	return errors.Join(failed...)
}

// ForgetWarmUps has the next warm-ups ask for every name again: others answered the pods
// meanwhile, maybe with other addresses than the earlier warm-ups got.
func (s *Server) ForgetWarmUps() {
	for _, r := range s.setup.Load().resolvers() {
		r.warmed.Clear()
	}
}

// WarmNames queries names of a view, A and AAAA, and grants the answers, as if the pod
// had asked. So a pod that got its answers elsewhere, before it was selected or while no
// agent served, keeps the names it uses. It returns when all are granted, with the
// failures joined, or when ctx has ended; queries in flight then end by themselves. A
// failed name is queried again later, as long as the pod's view has it. A name is not
// queried again while the answer to an earlier warm-up is valid.
func (s *Server) WarmNames(ctx context.Context, v *policy.View, names []fqdn.Name) error {
	return s.warm(ctx, v, names, 0)
}

// warm is WarmNames; waited is the pause since the names failed, 0 for the first warm-up.
func (s *Server) warm(ctx context.Context, v *policy.View, names []fqdn.Name, waited time.Duration) (failed error) {
	if !v.InForce() {
		return nil
	}
	pause := max(coldPause, min(2*waited, coldPauseMost))
	w := &warmUp{s: s, ctx: ctx, view: v, snap: s.snapshot.Load(), names: names, results: make(chan warmResult, 2*len(names))}
	if waited > 0 {
		w.early = max(0, warmAgain-waited)
	}
	open := map[fqdn.Name]int{} // questions without a good answer
	for _, n := range names {
		open[n] += 2
	}
	defer func() { s.cold.add(s, v.Pod.PodRef, open, pause) }()
	for range min(warmAtOnce, 2*len(names)) {
		w.next()
	}
	for range 2 * len(names) {
		select {
		case r := <-w.results:
			if failed = errors.Join(failed, r.err); r.err != nil {
				continue
			}
			if open[r.name]--; open[r.name] == 0 {
				delete(open, r.name)
			}
		case <-ctx.Done():
			return errors.Join(failed, ctx.Err())
		}
	}
	return failed
}

// coldNames are the names whose last warm-up failed, by pod.
type coldNames struct {
	mu     sync.Mutex
	pods   map[policy.PodRef]*coldPod
	closed bool
}

// coldPod are the names of a pod that are asked for together when the pause is over.
type coldPod struct {
	names map[fqdn.Name]bool
	pause time.Duration
	stop  func() bool
}

// add has names of a pod asked for again after the pause, or sooner if others of its are.
func (c *coldNames) add(s *Server, pod policy.PodRef, names map[fqdn.Name]int, pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(names) == 0 {
		return
	}
	last, p := c.pods[pod], &coldPod{names: map[fqdn.Name]bool{}, pause: pause}
	if last != nil && last.pause <= pause {
		p = last
	} else if last != nil {
		last.stop()
		maps.Copy(p.names, last.names)
	}
	for n := range names {
		p.names[n] = true
	}
	if p != last {
		p.stop = s.after(pause, func() { c.warm(s, pod, p) })
		c.pods[pod] = p
	}
}

// warm asks for the names that the pod's view still has.
func (c *coldNames) warm(s *Server, pod policy.PodRef, p *coldPod) {
	c.mu.Lock()
	due := c.pods[pod] == p
	if due {
		delete(c.pods, pod)
	}
	c.mu.Unlock()
	v := s.snapshot.Load().ViewOf(pod)
	if !due || v == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), coldPauseMost)
	defer cancel()
	names := slices.DeleteFunc(slices.Concat(v.ExactNames()), func(n fqdn.Name) bool { return !p.names[n] })
	_ = s.warm(ctx, v, names, p.pause) // the first failure was reported
}

// stop forgets all names, for good.
func (c *coldNames) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, p := range c.pods {
		p.stop()
	}
	clear(c.pods)
}

// warmUp is the replier of the queries of one pod's warm-up.
type warmUp struct {
	s     *Server
	ctx   context.Context
	view  *policy.View
	snap  *policy.Snapshot
	names []fqdn.Name
	// early is how much before its end a kept answer does not count any more: a retry asks
	// again for failures that are older than its pause.
	early   time.Duration
	asked   atomic.Int64
	results chan warmResult // has room for all
}

// warmResult is how one question for a name ended.
type warmResult struct {
	name fqdn.Name
	err  error
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
		err = errors.New("resolve " + q.question.Name.String() + " for " + subject(w.view) + ": " + q.rec.Error)
	}
	w.results <- warmResult{q.question.Name, err}
	w.s.workers.do(w.next)
}

// subject names the subject of a view for people.
func subject(v *policy.View) string {
	if v.Node != nil {
		return v.Pod.String()
	}
	return "pod " + v.Pod.String()
}

// ask runs a query that no client sent, for the subject of the view: for the node at any
// resolver of the host.
func (s *Server) ask(v *policy.View, snap *policy.Snapshot, a wire.Query, from origin, to replier) {
	host := netip.Addr{}
	if v.Node != nil {
		host = everyResolver
	}
	s.askAt(host, v, snap, a, from, to)
}

// askAt is ask at a resolver of the host, which is none for a pod.
func (s *Server) askAt(host netip.Addr, v *policy.View, snap *policy.Snapshot, a wire.Query, from origin, to replier) {
	packet := a.Pack(0)
	if a.Flags&wire.DO == 0 {
		packet = a.PackWithoutEDNS(0)
	}
	c := identity{known: true, view: v, snap: snap, host: host, version: s.version.Load()}
	if len(v.Pod.IPs) > 0 {
		c.addr = v.Pod.IPs[0]
	}
	s.newQuery(packet, from, &c, to, s.now()).run()
}

// lookupWarmed answers a warm-up with the answer that an earlier one got. An answer that
// is kept for clients comes from there, so that the pod is noted.
func (q *query) lookupWarmed(now time.Duration) bool {
	r := q.resolver()
	e := r.warmed.Get(q.asks)
	if w := q.to.(*warmUp); e == nil || !e.Fresh(now+w.early) {
		return false
	}
	if q.zone.keeps(q.asks) != nil {
		if kept := r.cache.Get(q.asks); kept != nil && kept.Fresh(now) {
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
	q.resolver().warmed.Put(cache.NewEntry(q.asks, packed, q.from, q.s.elapsed(), holds))
}
