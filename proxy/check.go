package proxy

import (
	"slices"

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
	strict   bool            // the reply has the checked addresses and no others
	decision policy.Decision // about the question, by its answer
	guarded  fqdn.Name       // that the guard judged the addresses for
	listed   []wire.Address  // of the answer
	places   bool            // and where they are: a rule that requires the server name counts
	verdicts []rebind.Verdict
	free     []int          // the indexes of the addresses that the guard left
	kept     []wire.Address // the addresses in the reply
	single   bool           // the reply is of one answer, as it is kept
}

func (c *checked) reset() {
	c.strict, c.guarded, c.places, c.decision, c.listed, c.single = false, "", false, policy.Decision{}, nil, false
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
	switch p := &q.plan; {
	case q.alias != nil:
		q.note(&p.base)
		q.rec.Chain = append(q.rec.Chain, p.base.Query.Name)
		if !q.leave(p.base.Query) {
			q.judge(&p.base)
		}
		return
	case p.action == complete && q.msg != nil && q.msg.Rcode == dns.RcodeRefused && v.StrictestUnmatched() != policy.Resolve:
		q.withhold(dns.RcodeNameError) // REFUSED would end musl's search
		return
	case p.action == complete && q.completed():
		q.alias = q.answerMessage()
		q.asks.Name, q.missed, q.msg = p.base.Query.Name, false, nil
		q.found.Reset()
		q.lookup()
		return
	case q.question.Class != dns.ClassINET: // what looks like an address is none
		q.rec.Verdict, q.rec.Would, q.rec.Matches, q.rec.Rule, q.rec.Via = audit.Unmatched, audit.None, nil, nil, ""
		if q.strict = v.OrderInForce(); q.strict { // the answer for any class may have addresses, which no rule counts
			q.answerMessage()
		}
		q.pass(q.question.Name)
		return
	case q.leave(p.decision.Query):
		return
	case p.action != open && !v.Ordered():
		q.pass(q.question.Name)
		return
	}
	if q.plan.followed() {
		s.stats.Followed.Add(1)
	}
	q.judge(&q.plan.decision)
}

// completed tells whether the upstream completed a search path: it says that the question
// is another name for the allowed one, which proves nothing. So that name is asked itself,
// and its own answer is granted and handed on behind the CNAME that leads to it.
func (q *query) completed() bool {
	c := q.readAnswer()
	return len(c.Chain) > 0 && c.Chain[0] == q.plan.base.Query.Name
}

// noteClient notes which pod queried a cached answer, if it may be prefetched.
func (q *query) noteClient() {
	if q.entry == nil || !q.client.view.InForce() || q.errand.is(forPrefetch) || q.errand.is(forUse) {
		return
	}
	if z := q.zone.keeps(q.asks); z != nil && z.Cache.Prefetch.Amount > 0 {
		q.zone.cache.NoteClient(q.entry, q.client.view.Pod.PodRef)
	}
}

// readAnswer returns the content of the answer to its question.
func (q *query) readAnswer() answer.Checked {
	if q.msg == nil {
		return answer.Checked{Chain: q.found.Chain, Addrs: q.found.Addrs}
	}
	return answer.Check(q.asks.Question, q.msg, q.setup.config.Limits.Addresses)
}

// leave continues at the name outside the cluster domain to which the answer for a name inside
// leads, and tells whether there is one. It is decided as the question, see policy.Query.Leave, and
// asked.
func (q *query) leave(inside policy.Query) bool {
	v, domain := q.client.view, q.setup.config.ClusterDomain
	if !inside.InCluster {
		return false
	}
	c := q.readAnswer()
	i := slices.IndexFunc(c.Chain, func(n fqdn.Name) bool { return !n.HasSuffix(domain) })
	if i < 0 {
		return false
	}
	q.plan.base = decide(v, inside.Leave(c.Chain[i], c.Chain[:i]...), q.followedFrom)
	d := &q.plan.base
	q.single, q.rec.Left = false, d.Query.Name
	q.note(d)
	switch {
	case d.Limit != policy.NoLimit:
		q.limited(d.Limit, rcodes[d.Reply])
	case d.Denied != nil && d.Reply != policy.Resolve && !q.errand.is(forWarmUp):
		q.deny(d)
	case d.Denied == nil && d.Reply != policy.Resolve:
		q.withhold(rcodes[d.Reply])
	case !v.OrderInForce() && !d.Allowed():
		q.pass(d.Query.Name)
	default:
		m := q.answerMessage()
		if q.rec.Chain = append(q.rec.Chain, c.Chain[:i]...); q.alias != nil {
			m = m.Copy()
			m.Answer = append(m.Answer, q.alias.Answer...)
		}
		q.alias = m
		q.asks.Name, q.missed, q.msg = d.Query.Name, false, nil
		q.found.Reset()
		q.lookup()
	}
	return true
}

// pass hands the answer on as it is: it opens nothing. The guard's verdicts for the name are logged.
func (q *query) pass(n fqdn.Name) {
	if q.s.log != nil {
		c := q.readAnswer()
		q.rec.Chain, q.listed = c.Chain, c.Addrs
		q.guard(n)
	}
	q.replyAnswer()
}

// judge checks the answer to the query of the decision, decides again with the answer's chain,
// and enters the addresses for the rules that count. The reply has the checked addresses and
// no others: where a rule accepts, those that the guard left.
func (q *query) judge(d *policy.Decision) {
	s := q.s
	if q.msg != nil && upstream.Passed(q.msg.Rcode) {
		if q.strict = d.Counts(); q.strict {
			q.rec.Verdict, q.rec.Error = audit.Failed, "the upstream has no answer"
		}
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
	v := q.client.view
	strict := v.OrderInForce() || d.Allowed() // rules for the log alone change no answer
	switch {
	case c.Reason != "" && !strict:
		q.replyAnswer()
		return
	case c.Reason != "":
		s.stats.Dishonest.Add(1)
		q.fail("the answer is not trusted: " + c.Reason)
		return
	case len(c.Chain) > 0 && v.Ordered():
		again := q.again(d.Query, c.Chain)
		d = &again
	}
	if d.Denied != nil && d.Reply != policy.Resolve {
		q.deny(d)
		return
	}
	q.strict, q.decision, q.listed = strict, *d, q.withinShare(d, c.Addrs)
	if !d.Allowed() {
		q.guard(d.Query.Name)
		q.kept = append(q.kept, c.Addrs...)
		q.grant()
		return
	}
	q.guard(d.CountsFor())
	s.stats.AddressesBlocked.Add(uint64(len(c.Addrs) - len(q.free)))
	for _, at := range q.free {
		q.kept = append(q.kept, c.Addrs[at])
	}
	q.guardVia(d.Query.Via)
	q.grant()
}

// withinShare returns the addresses for which the pod has room, the first of the answer, at least
// one: each needs a grant for each opening.
func (q *query) withinShare(d *policy.Decision, addrs []wire.Address) []wire.Address {
	share := q.s.granter.Share()
	if len(addrs)*len(d.Matches) <= share { // nearly always: a match makes one opening at most
		return addrs
	}
	fit := max(1, share/max(len(d.Openings(0)), 1))
	if len(addrs) <= fit {
		return addrs
	}
	q.s.stats.AddressesOver.Add(uint64(len(addrs) - fit))
	q.rec.Limit = policy.LimitGrants
	return addrs[:fit]
}

// again decides with the aliases of the checked answer: a rule that denies one of them denies
// the question.
func (q *query) again(ask policy.Query, chain []fqdn.Name) policy.Decision {
	ask.Aliases = append(slices.Clip(ask.Aliases), chain...)
	d := policy.Decide(q.client.view, ask)
	q.note(&d)
	return d
}

// guard puts the addresses into the record with the guard's verdict on each for the name.
func (q *query) guard(n fqdn.Name) {
	guard := q.setup.guardFor(q.client.host.IsValid())
	q.guarded = n
	q.verdicts, q.free, q.kept = q.verdicts[:0], q.free[:0], q.kept[:0]
	q.granted.reset()
	q.places = slices.ContainsFunc(q.decision.Matches, func(m *policy.Match) bool { return m.ServerName && !m.Audit })
	for i, a := range q.listed {
		v := guard.Judge(n, a.Addr, q.places, q.client.snap)
		q.answers = append(q.answers, audit.Answer{Addr: a.Addr, TTL: a.TTL, Blocked: v.Reason})
		q.verdicts = append(q.verdicts, v)
		if v.Reason == "" {
			q.free = append(q.free, i)
		}
	}
	q.rec.Answers = q.answers
	if len(q.listed) > 0 && len(q.free) == 0 {
		q.rec.Verdict, q.rec.Would = guarded(q.rec.Verdict), guarded(q.rec.Would)
	}
}

// guardVia finds the names that led to the question and may not open one of its addresses. A
// name that may opens them for its own rules alone.
func (q *query) guardVia(via []fqdn.Name) {
	guard := q.setup.guardFor(q.client.host.IsValid())
	for _, n := range via {
		if n != q.guarded && slices.ContainsFunc(q.kept, func(a wire.Address) bool { return guard.Blocked(n, a.Addr, q.client.snap) != "" }) {
			q.shut, q.single = append(q.shut, n), false
		}
	}
}

// guarded is the verdict where the guard left no address of an answer.
func guarded(v audit.Verdict) audit.Verdict {
	if v == audit.Allowed {
		return audit.Blocked
	}
	return v
}
