package proxy

import (
	"context"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/rebind"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
)

// turn is the way of one selected pod's question from plan to reply. What
// happens on it is written into the record.
type turn struct {
	s     *Server
	setup *setup
	view  *policy.View
	snap  *policy.Snapshot
	query *dns.Msg
	q     wire.Question
	plan  plan
	rec   audit.Record
	// What the reply was made of, so that it can be given again.
	answer answer
	base   time.Time // from which the deadlines of its grants count
	single bool      // of one answer, as it is kept
	quiet  bool      // no pod has asked
	warms  bool      // it is a warm-up's
	given  *outcome  // what the upstreams say, if it is known
	spent  stages
	grants []policy.Grant
	told   []uint32 // the TTLs of the addresses that were granted
	judged rebind.Verdicts
}

// run returns the reply, and leaves the verdict in the record.
func (t *turn) run() *dns.Msg {
	t.plan = planFor(t.view, t.q.Name, t.setup.config, t.led)
	t.rec.Would = t.plan.would
	if t.q.Class != dns.ClassINET && (t.plan.action == open || t.plan.action == complete) {
		t.plan.action = pass // the addresses of another class are no addresses
	}
	switch t.plan.action {
	case notThere:
		return t.withhold(dns.RcodeNameError)
	case refuse:
		return t.withhold(dns.RcodeRefused)
	}
	a := queryOf(t.q, t.query)
	got, err := t.resolve(a)
	if err != nil {
		return t.fail(err.Error())
	}
	t.single = true
	switch t.plan.action {
	case open:
		t.rec.Matches, t.rec.Via = t.plan.decision.Matches, t.plan.via
		if t.plan.via == "" {
			return t.open(t.q, t.q.Name, t.plan.decision, got.msg)
		}
		t.s.stats.Followed.Add(1)
		return t.open(t.q, t.plan.via, t.plan.decision, got.msg)
	case complete:
		if got.msg.Rcode == dns.RcodeRefused && t.view.Unmatched != policy.Resolve {
			return t.withhold(dns.RcodeNameError) // REFUSED would end musl's search
		}
		if pointsAt(t.q, got.msg, t.plan.base) {
			return t.openBase(a, got.msg)
		}
	}
	return t.pass(got.msg)
}

// led returns the allowed name by which the turn's pod is led to another now.
func (t *turn) led(n fqdn.Name) (fqdn.Name, bool) {
	if !t.setup.config.Follow || t.q.Class != dns.ClassINET {
		return "", false
	}
	return t.s.follows.via(t.view.Pod.PodRef, n, t.s.elapsed())
}

// resolve finds what a query's answer is, and notes from where.
func (t *turn) resolve(a wire.Query) (answer, error) {
	began := t.s.now()
	got, err := t.ask(a)
	if t.given == nil && got.how != audit.CacheHit {
		t.spent.heard(t.s.now().Sub(began))
	}
	t.given = nil
	if err != nil {
		return got, err
	}
	t.answer, t.base = got, got.base
	t.rec.Upstream, t.rec.Cache = got.from, got.how
	if z := keeps(t.setup.config, a); z != nil && z.Cache.Prefetch.Amount > 0 && t.view.Enforced && !t.quiet {
		e := got.kept
		if e == nil { // it was not kept before
			e = t.setup.keeper.cache.get(a, t.s.elapsed())
		}
		if e != nil {
			t.setup.keeper.cache.asked(e, t.view.Pod.PodRef)
		}
	}
	return got, nil
}

// withhold answers without asking anybody.
func (t *turn) withhold(rcode int) *dns.Msg {
	t.rec.Verdict = audit.Refused
	t.auditMatches()
	return respond(t.query, rcode)
}

// fail answers SERVFAIL and says why in the log.
func (t *turn) fail(reason string) *dns.Msg {
	t.rec.Verdict, t.rec.Error = audit.Failed, reason
	return respond(t.query, dns.RcodeServerFailure)
}

// pass hands the answer on as it is: it opens nothing.
func (t *turn) pass(m *dns.Msg) *dns.Msg {
	t.rec.Verdict = audit.Unmatched
	t.auditMatches()
	if t.s.log != nil {
		c := Check(t.q, m, t.setup.config.Limits.Addresses)
		t.rec.Chain = c.Chain
		left := t.judge(t.q.Name, c.Addrs)
		if t.rec.Would == audit.Allowed && len(c.Addrs) > 0 && len(left) == 0 {
			t.rec.Would = audit.Blocked
		}
	}
	return relay(t.query, m)
}

// auditMatches notes the matches of Audit policies where only those matter.
func (t *turn) auditMatches() {
	if t.rec.Would == audit.Allowed {
		t.rec.Matches = t.plan.decision.Matches
	}
}

// judge puts the addresses into the record with the guard's word on each, and
// returns the indexes of those that the name may open.
func (t *turn) judge(n fqdn.Name, addrs []wire.Address) (free []int) {
	t.rec.Answers = make([]audit.Answer, len(addrs))
	t.judged = rebind.Verdicts{Name: n, Addrs: make([]rebind.Verdict, len(addrs))}
	for i, a := range addrs {
		t.rec.Answers[i].Addr, t.rec.Answers[i].TTL = a.Addr, a.TTL
		why := t.setup.guard.Blocked(n, a.Addr, t.snap)
		t.judged.Addrs[i] = rebind.Verdict{Addr: a.Addr, Reason: why}
		if why != "" {
			t.rec.Answers[i].Blocked = why
			continue
		}
		free = append(free, i)
	}
	return free
}

// open checks the answer to a question, grants its addresses by what is decided
// about the allowed name, which is the question's or one that led there, and
// returns the reply with those and no others.
func (t *turn) open(q wire.Question, allowed fqdn.Name, d policy.Decision, m *dns.Msg) *dns.Msg {
	if upstream.Passed(m.Rcode) {
		t.rec.Verdict, t.rec.Error = audit.Failed, "the upstream has no answer"
		r := relay(t.query, m)
		trim(r, nil, 0) // what is not granted is not told
		return r
	}
	t.s.step("check")
	most := t.setup.config.Limits.Addresses
	c := Check(q, m, most)
	t.rec.Chain = append(t.rec.Chain, c.Chain...)
	t.s.stats.AddressesOver.Add(uint64(c.Over))
	if c.Reason != "" {
		t.s.stats.Dishonest.Add(1)
		return t.fail("the answer is not trusted: " + c.Reason)
	}
	free := t.judge(allowed, c.Addrs)
	t.s.stats.AddressesBlocked.Add(uint64(len(c.Addrs) - len(free)))
	t.rec.Verdict = audit.Allowed
	if len(c.Addrs) > 0 && len(free) == 0 {
		t.rec.Verdict = audit.Blocked
	}
	kept := make([]wire.Address, len(free))
	for i, at := range free {
		kept[i] = c.Addrs[at]
		t.told = append(t.told, c.Addrs[at].TTL)
	}
	if err := t.grant(allowed, d, kept, free); err != nil {
		return t.fail("the kernel did not take the grant: " + err.Error())
	}
	t.s.step("granted")
	t.lead(q, allowed, d, m)
	r := relay(t.query, m)
	trim(r, kept, longestTTL(d))
	return r
}

// grant has the addresses opened before the answer leaves; at are their indexes
// in the record.
func (t *turn) grant(n fqdn.Name, d policy.Decision, addrs []wire.Address, at []int) error {
	grants, opened := grantsOf(t.view, n, d, addrs, t.base)
	if len(grants) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.setup.config.GrantTimeout)
	defer cancel()
	began := t.s.now()
	err := t.s.program(ctx, grants)
	t.spent.acknowledged(t.s.now().Sub(began))
	if err != nil {
		t.s.stats.GrantFailures.Add(1)
		return err
	}
	t.grants = grants
	t.s.stats.Grants.Add(1)
	t.s.stats.AddressesGranted.Add(uint64(len(addrs)))
	for i, o := range opened {
		t.rec.Answers[at[i]].Openings = o
	}
	return nil
}

// openBase goes on where the upstream completed a search path: it said that the
// question is another name for the allowed one, which proves nothing. So that
// name is asked itself, and its own answer is granted and handed on behind the
// CNAME that leads to it.
func (t *turn) openBase(a wire.Query, alias *dns.Msg) *dns.Msg {
	a.Name = t.plan.base
	got, err := t.resolve(a)
	if err != nil {
		return t.fail(err.Error())
	}
	t.single = false
	t.rec.Matches, t.rec.Would, t.rec.Via = t.plan.baseDecision.Matches, audit.None, t.plan.baseVia
	t.rec.Chain = append(t.rec.Chain, t.plan.base)
	allowed := t.plan.base
	if t.plan.baseVia != "" {
		allowed = t.plan.baseVia
	}
	r := t.open(a.Question, allowed, t.plan.baseDecision, got.msg)
	if t.rec.Verdict == audit.Failed {
		return r
	}
	return behind(r, t.q, alias)
}

// finish completes the record and hands it to the log.
func (t *turn) finish(reply *dns.Msg, started time.Time) {
	t.s.stats.verdicts.add(t.rec.Verdict, t.q.Type)
	took := t.s.now().Sub(started)
	if !t.quiet { // nobody waits for a prefetch
		t.s.stats.latency.ended(t.spent, took)
	}
	if t.s.log == nil {
		return
	}
	t.rec.Time, t.rec.Latency = started, took
	t.rec.Rcode = reply.Rcode
	t.s.log.Write(t.rec)
}
