package proxy

import (
	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/answer"
	"github.com/namegate/namegate/proxy/rebind"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
)

// checked is the checked content of an answer, and the addresses that it opens.
type checked struct {
	opens    bool            // a name allows the addresses
	allowed  fqdn.Name       // that name
	decision policy.Decision // about allowed
	guarded  fqdn.Name       // that the guard judged the addresses for
	verdicts []rebind.Verdict
	free     []int // the indexes of the addresses that the guard left
	kept     []wire.Address
	single   bool // the reply is of one answer, as it is kept
}

func (c *checked) reset() {
	c.opens, c.allowed, c.guarded, c.decision, c.single = false, "", "", policy.Decision{}, false
	c.verdicts, c.free, c.kept = c.verdicts[:0], c.free[:0], c.kept[:0]
}

// check checks the answer and continues by the plan.
func (q *query) check() {
	s := q.s
	s.step("answered")
	q.heard()
	v := q.client.view
	if v == nil {
		q.replyAnswer()
		return
	}
	q.rec.Upstream, q.rec.Cache = q.from, q.how
	q.noteClient()
	q.single = q.alias == nil
	p := &q.plan
	switch {
	case q.alias != nil:
		q.rec.Matches, q.rec.Would, q.rec.Via = p.baseDecision.Matches, audit.None, p.baseVia
		q.rec.Chain = append(q.rec.Chain, p.base)
		q.open(p.base, p.baseVia, p.baseDecision)
		return
	case p.action == open:
		q.rec.Matches, q.rec.Via = p.decision.Matches, p.via
		if p.via != "" {
			s.stats.Followed.Add(1)
		}
		q.open(q.question.Name, p.via, p.decision)
		return
	case p.action == complete && q.msg != nil && q.msg.Rcode == dns.RcodeRefused && v.Unmatched != policy.Resolve:
		q.withhold(dns.RcodeNameError) // REFUSED would end musl's search
		return
	case p.action == complete && q.completed():
		q.alias = q.answerMessage()
		q.asks.Name, q.missed, q.msg = p.base, false, nil
		q.found.Reset()
		q.lookup()
		return
	}
	q.pass()
}

// completed tells whether the upstream completed a search path: it says that the question
// is another name for the allowed one, which proves nothing. So that name is asked itself,
// and its own answer is granted and handed on behind the CNAME that leads to it.
func (q *query) completed() bool {
	if q.msg == nil {
		return len(q.found.Chain) > 0 && q.found.Chain[0] == q.plan.base
	}
	return answer.PointsAt(q.asks.Question, q.msg, q.plan.base)
}

// noteClient notes which pod queried a cached answer, if it may be prefetched.
func (q *query) noteClient() {
	if q.entry == nil || !q.client.view.Enforced || q.origin == fromPrefetch {
		return
	}
	if z := q.zone.keeps(q.asks); z != nil && z.Cache.Prefetch.Amount > 0 {
		q.setup.resolver.cache.NoteClient(q.entry, q.client.view.Pod.PodRef)
	}
}

// readAnswer returns the content of the answer to its question.
func (q *query) readAnswer() answer.Checked {
	if q.msg == nil {
		return answer.Checked{Chain: q.found.Chain, Addrs: q.found.Addrs}
	}
	return answer.Check(q.asks.Question, q.msg, q.setup.config.Limits.Addresses)
}

// pass hands the answer on as it is: it opens nothing.
func (q *query) pass() {
	q.rec.Verdict = audit.Unmatched
	q.auditMatches()
	if q.s.log != nil {
		c := q.readAnswer()
		q.rec.Chain = c.Chain
		q.guard(q.question.Name, c.Addrs)
		if q.rec.Would == audit.Allowed && len(c.Addrs) > 0 && len(q.free) == 0 {
			q.rec.Would = audit.Blocked
		}
	}
	q.replyAnswer()
}

// open checks the answer to the query for the allowed name n, or for a name followed from
// via, and grants its addresses by the decision about the allowed name. The reply has
// these addresses and no others.
func (q *query) open(n, via fqdn.Name, d policy.Decision) {
	s := q.s
	if q.opens, q.allowed, q.decision = true, n, d; via != "" {
		q.allowed = via
	}
	if q.msg != nil && upstream.Passed(q.msg.Rcode) {
		q.rec.Verdict, q.rec.Error = audit.Failed, "the upstream has no answer"
		q.replyAnswer() // an address that is not granted is not told
		return
	}
	s.step("check")
	c := q.readAnswer()
	if q.alias != nil {
		q.rec.Chain = append(q.rec.Chain, c.Chain...)
	} else {
		q.rec.Chain = c.Chain
	}
	s.stats.AddressesOver.Add(uint64(c.Over))
	if c.Reason != "" {
		s.stats.Dishonest.Add(1)
		q.fail("the answer is not trusted: " + c.Reason)
		return
	}
	q.guard(q.allowed, c.Addrs)
	s.stats.AddressesBlocked.Add(uint64(len(c.Addrs) - len(q.free)))
	q.rec.Verdict = audit.Allowed
	if len(c.Addrs) > 0 && len(q.free) == 0 {
		q.rec.Verdict = audit.Blocked
	}
	for _, at := range q.free {
		q.kept = append(q.kept, c.Addrs[at])
	}
	q.grant()
}

// guard puts the addresses into the record with the guard's verdict on each for the name.
func (q *query) guard(n fqdn.Name, addrs []wire.Address) {
	q.guarded = n
	q.verdicts, q.free, q.kept = q.verdicts[:0], q.free[:0], q.kept[:0]
	q.granted.reset()
	for i, a := range addrs {
		why := q.setup.guard.Blocked(n, a.Addr, q.client.snap)
		q.answers = append(q.answers, audit.Answer{Addr: a.Addr, TTL: a.TTL, Blocked: why})
		q.verdicts = append(q.verdicts, rebind.Verdict{Addr: a.Addr, Reason: why})
		if why == "" {
			q.free = append(q.free, i)
		}
	}
	q.rec.Answers = q.answers
}
