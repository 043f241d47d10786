package proxy

import (
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/answer"
	"github.com/namegate/namegate/proxy/cache"
	"github.com/namegate/namegate/proxy/rebind"
	"github.com/namegate/namegate/proxy/wire"
)

// fail answers SERVFAIL and says why in the log.
func (q *query) fail(reason string) {
	q.rec.Verdict, q.rec.Error = audit.Failed, reason
	if q.rec.Would != audit.NameDenied {
		q.rec.Rule = nil // it decided nothing
	}
	q.replyError(dns.RcodeServerFailure)
}

// replyError replies without records.
func (q *query) replyError(rcode int) {
	r := answer.Error(q.message(), rcode)
	q.reply(q.encode(r), r.Rcode)
}

// inPlace tells whether the reply to the client can be written without the dns library:
// the answer is read in place, fits and is unchanged.
func (q *query) inPlace() bool {
	return q.msg == nil && q.plain && q.alias == nil && (!q.strict || len(q.kept) == len(q.found.Addrs)) && q.found.Fits(&q.view)
}

// replyAnswer replies with the answer: where it is checked with the kept addresses and no
// others, and with TTLs for which they are open.
func (q *query) replyAnswer() {
	longest := uint32(0)
	if q.strict && q.rec.Verdict != audit.Failed {
		longest = longestTTL(&q.decision)
	}
	if q.inPlace() {
		q.out = q.found.AppendReply(q.out[:0], &q.view)
		if q.strict {
			q.found.LowerTTLs(q.out, longest)
		}
		q.reply(q.out, dns.RcodeSuccess)
		return
	}
	r := answer.Relay(q.message(), q.answerMessage())
	if q.strict {
		answer.Restrict(r, q.kept, longest)
		if q.decision.Checks() {
			answer.ShowServerName(r)
		}
	}
	if q.alias != nil && q.rec.Verdict != audit.Failed {
		r = answer.Behind(r, q.question.Question, q.asks.Name, q.alias)
	}
	q.reply(q.encode(r), r.Rcode)
}

// encode returns the message as a reply to the query.
func (q *query) encode(r *dns.Msg) []byte {
	return answer.Encode(q.message(), r, q.to.stream())
}

// reply ends the query with the reply, which is in the log before the client has it.
func (q *query) reply(packet []byte, rcode int) {
	q.rec.Rcode = rcode
	q.store(packet)
	q.audit()
	q.send(packet)
}

// audit counts the decision and how long the query took, and logs it.
func (q *query) audit() {
	s := q.s
	if q.client.view == nil || q.errand.is(forWarmUp) || q.errand.is(forUse) && q.rec.Verdict != audit.Renewed {
		return
	}
	s.step("audit")
	s.stats.Verdicts.Add(q.rec.Verdict, q.question.Type)
	took := s.now().Sub(q.started)
	switch {
	case q.errand == nil:
		s.stats.Latency.Observe(q.wait.spent, took)
	case q.errand.is(forPrefetch):
		q.rec.Cache = audit.CachePrefetch
	}
	if s.log == nil {
		return
	}
	q.rec.Latency = took
	s.protect("the log of a query", func() { s.log.Write(q.rec) })
}

// cached writes the reply to a query into out, if there is a finished one, and returns its
// length, 0 if there is none, and whether an answer is kept.
func (s *Server) cached(q *wire.QueryView, c *identity, started time.Time, out []byte) (n int, kept bool) {
	s.step("cache")
	if denied, _ := s.dialled.denies(c, false); denied {
		return 0, true
	}
	setup := s.setup.Load()
	now := started.Sub(s.started)
	root := setup.zone(c, "")
	if root == nil {
		return 0, false
	}
	var cookie []byte
	if q.EDNS && len(q.Packet) > q.End+wire.OPTBytes {
		known := false
		if cookie, known = root.cookies.of(root, q.Packet, nil); !known {
			return 0, true
		}
	}
	e, r := root.cache.Packet(q, c.view, now)
	if r == nil || !r.Valid(e, setup.config, now) || !r.Guard(setup.guardFor(c.host.IsValid()), c.snap, c.version) || !r.Covered(s.granter) {
		return 0, e != nil
	}
	if n = r.Copy(e, q, now, out[:len(out)-wire.CookieRoom]); n == 0 {
		return 0, true
	}
	if cookie != nil {
		n = len(wire.AppendCookie(out[:n], cookie))
	}
	s.step("hit")
	s.stats.Queries.Add(1)
	s.stats.CacheHits.Add(1)
	if r.Followed {
		s.stats.Followed.Add(1)
	}
	if e.Hit(now) {
		root.renewals.prefetch(setup.zone(c, e.Query.Name), e, c.view, r.Rate, now)
	}
	if c.view == nil {
		return n, true
	}
	s.stats.Verdicts.Add(r.Verdict, q.Type())
	s.step("log")
	took := s.now().Sub(started)
	s.stats.Latency.Hit(took)
	if r.Line != nil {
		s.log.Repeat(r.Line, started, c.addr, took)
	}
	return n, true
}

// store keeps the reply for the queries that follow, if it was made of a kept answer.
func (q *query) store(packet []byte) {
	s := q.s
	if q.how != audit.CacheHit || !q.overUDP() || !q.plain || q.entry == nil || len(packet) < wire.HeaderBytes ||
		packet[2]&0x02 != 0 || wire.QuestionEnd(packet) != q.view.End {
		return
	}
	if s.setup.Load().config != q.setup.config {
		return // no query would get it
	}
	s.step("store")
	r := cache.NewReply(q.entry, packet, q.base.Sub(s.started), q.client.version)
	if r.Config = q.setup.config; q.client.view != nil && !q.decided(r) {
		return
	}
	q.zone.cache.Store(q.entry, &q.view, q.client.view, r, s.inForce)
}

// decided completes a reply with the decision. False: other queries cannot use it,
// because it is of several answers, or failed.
func (q *query) decided(r *cache.Reply) bool {
	s := q.s
	if !q.single || q.rec.Verdict == audit.Failed {
		return false
	}
	if q.client.view.InForce() && q.setup.config.Follow {
		epoch := s.followed.Epoch(q.client.view.Pod.PodRef)
		r.NamesEpoch, r.Epoch = epoch, epoch.Load() // before the look at the names
	}
	until, ok := q.settled(s.elapsed())
	r.Until = min(r.Until, until, q.steady(r))
	r.Verdict, r.Followed, r.Rate = q.rec.Verdict, q.plan.followed(), q.rate()
	r.Guarded = rebind.Verdicts{Name: q.guarded, Addrs: slices.Clone(q.verdicts), Places: q.places}
	r.Grants = slices.Clone(q.grants)
	for i := range r.Grants {
		r.Grants[i].Addrs = slices.Clone(r.Grants[i].Addrs)
	}
	if s.log != nil {
		r.Line = s.log.Prepare(&q.rec)
	}
	return ok
}

// steady returns until when a reply may be used again: as long as its deadlines stay the
// same, and no bound of a policy's TTL takes effect. With such a bound, TTLs and
// deadlines move with each second.
func (q *query) steady(r *cache.Reply) time.Duration {
	until, step := r.Until, r.TTLsFrom(q.entry)
	if !q.strict {
		return until
	}
	longest := longestTTL(&q.decision)
	for _, rr := range q.msg.Answer {
		if rr.Header().Ttl > longest {
			return step
		}
	}
	for _, a := range q.kept {
		for _, m := range q.decision.Matches {
			left := time.Duration(a.TTL) * time.Second
			switch {
			case m.Audit:
			case left < m.TTL.Min || left > m.TTL.Max:
				return step
			default:
				until = min(until, step+left-m.TTL.Min)
			}
		}
	}
	return until
}

// removedViews returns the views of a snapshot that the next one does not have.
func removedViews(old, next *policy.Snapshot) map[*policy.View]bool {
	if old == nil {
		return nil
	}
	gone := map[*policy.View]bool{}
	for _, v := range old.Views {
		if next.ViewOf(v.Pod.PodRef) != v {
			gone[v] = true
		}
	}
	return gone
}
