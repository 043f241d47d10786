package proxy

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/answer"
	"github.com/namegate/namegate/proxy/cache"
	"github.com/namegate/namegate/proxy/counters"
	"github.com/namegate/namegate/proxy/limit"
	"github.com/namegate/namegate/proxy/upstream"
	"github.com/namegate/namegate/proxy/wire"
)

// query is one question on its way through the proxy; the package's diagram has its
// states. No goroutine waits for it: a state that waits hands
// the query over to the call, the timer or the granter that resumes it, as its last step.
// One goroutine has the query at a time. A fault ends it, see protect.
type query struct {
	s       *Server
	setup   *setup
	to      replier
	udp     udpReplier // of a query over UDP
	errand  *errand    // nil: a client sent it
	client  identity
	slot    limit.Slot // none: nothing to give back
	started time.Time
	request
	batch *upstream.Batch // of the reader that has the query; nil on another goroutine

	plan   plan
	asks   wire.Query // of cache and upstreams: the question, or the name that a search path completes
	zone   *zone      // for asks.Name; nil where no forward covers it
	missed bool       // the packet cache has told that there is no answer
	result
	alias *dns.Msg // the answer that led to asks, where that is not the question

	checked
	granted
	rec  audit.Record
	out  []byte // the reply that is written in place
	wait wait
}

// replier sends the reply to a query and releases the transport's part of the query.
type replier interface {
	// stream tells whether the reply may have any length, and may block: the client asked over TCP.
	stream() bool
	// reply sends the reply; batched: with the next Send of the queues. The packet is lent.
	reply(packet []byte, batched bool)
	// done is called once, when the query is over.
	done(q *query)
}

// result is the state of the answer.
type result struct {
	found wire.AnswerView // the answer, where it is read in place
	msg   *dns.Msg        // else; it is shared and not changed
	from  netip.AddrPort
	how   audit.Cache
	entry *cache.Entry // that it was taken from
	base  time.Time    // the moment from which its TTLs count
}

// set notes the answer. One that is read in place has no message.
func (r *result) set(m *dns.Msg, from netip.AddrPort, how audit.Cache, e *cache.Entry, base time.Time) {
	r.msg, r.from, r.how, r.entry, r.base = m, from, how, e, base
}

// wait is the query's current wait, and the time that it has waited.
type wait struct {
	epoch    atomic.Uint64 // odd while the query waits for one of several events: the event that makes it even resumes the query
	spent    counters.Spent
	asked    time.Time // since when the answer is waited for
	answered time.Time // and since when the kernel is
	batched  bool      // the reply leaves with others
	replied  bool
	lent     bool // the granter may still have the grants: the query is not used again
	stale    *cache.Entry
}

var queries = sync.Pool{New: func() any { return new(query) }}

// newQuery is a query that arrived now, and keeps a copy of the packet.
func (s *Server) newQuery(packet []byte, c *identity, to replier, started time.Time) *query {
	q := queries.Get().(*query)
	q.s, q.client, q.to, q.started = s, *c, to, started
	q.keep(packet)
	return q
}

// overUDP tells whether a client asked over UDP.
func (q *query) overUDP() bool { return q.errand == nil && !q.to.stream() }

// protect runs a step of the query. A fault costs the query a SERVFAIL.
func (q *query) protect(step func()) {
	if !q.s.protect("a query", step) {
		q.broken()
	}
}

// run takes an admitted query through the proxy.
func (q *query) run() { q.protect(q.start) }

// do runs a step of the query on another goroutine.
func (q *query) do(step func()) { q.s.do(func() { q.protect(step) }) }

// start reads the question.
func (q *query) start() {
	s := q.s
	if !q.read() {
		s.stats.Malformed.Add(1)
		q.send(wire.ErrorReply(q.packet, dns.RcodeFormatError))
		return
	}
	if q.awaitCookie() {
		return
	}
	if q.errand == nil {
		s.stats.Queries.Add(1)
	}
	if q.to.stream() {
		s.stats.QueriesTCP.Add(1)
	}
	switch rcode, refused := q.refusal(); {
	case refused:
		q.send(q.encode(answer.Error(q.message(), rcode)))
		return
	case !q.readable:
		q.send(wire.ErrorReply(q.packet, dns.RcodeFormatError))
		return
	case q.question.Name == aliveName:
		q.send(q.alive())
		return
	}
	s.step("read")
	q.setup = s.setup.Load()
	q.decide()
}

// decide plans what happens to the question.
func (q *query) decide() {
	q.asks = q.question
	v := q.client.view
	if v == nil {
		q.lookup() // nothing is decided, granted or logged
		return
	}
	q.rec = audit.Record{Time: q.started, Pod: v.Pod.PodRef, Workload: v.Workload, Address: q.client.addr,
		Name: q.question.Name, Type: q.question.Type, Class: q.question.Class, TCP: q.to.stream()}
	if denied, by := q.s.dialled.denies(&q.client, q.to.stream()); denied {
		q.rec.Verdict, q.rec.Rule = audit.Refused, by
		q.closed(dns.RcodeRefused, by)
		return
	}
	q.plan = planFor(v, q.question.Name, q.question.Type, q.setup.config, q.followedFrom)
	q.note(&q.plan.decision)
	if q.question.Class != dns.ClassINET && (q.plan.action == open || q.plan.action == complete) {
		q.plan.action = pass // the addresses of another class are no addresses
	}
	q.s.step("decided")
	switch q.plan.action {
	case limited:
		q.limited(q.plan.decision.Limit, rcodes[q.plan.decision.Reply])
	case deny:
		q.deny(&q.plan.decision)
	case notThere:
		q.withhold(dns.RcodeNameError)
	case refuse:
		q.withhold(dns.RcodeRefused)
	default:
		q.lookup()
	}
}

// withhold answers without the upstreams' answer.
func (q *query) withhold(rcode int) {
	q.rec.Verdict = audit.Refused
	q.replyError(rcode)
}

// limitTexts are the extended errors (RFC 8914) of limits.
var limitTexts = [...]string{
	policy.LimitTypes:     "the policies do not allow queries of this type",
	policy.LimitLabels:    "the name has more labels than the policies allow",
	policy.LimitRate:      "more queries for names of this zone than the policies allow",
	policy.LimitEncrypted: "the policies do not allow encrypted DNS",
}

// rcodes are those of replies without an upstream's answer.
var rcodes = [...]int{policy.NXDomain: dns.RcodeNameError, policy.Refuse: dns.RcodeRefused, policy.NoData: dns.RcodeSuccess}

// limited replies that a limit keeps the question from being answered.
func (q *query) limited(by policy.Limit, rcode int) {
	q.rec.Verdict, q.rec.Limit, q.rec.Rule = audit.Refused, by, nil
	if q.errand == nil {
		q.s.stats.Limited(by).Add(1)
	}
	r := answer.Error(q.message(), rcode)
	answer.Explain(r, dns.ExtendedErrorCodeBlocked, limitTexts[by])
	q.reply(q.encode(r), rcode)
}

// rate is the rate of the zone of the name that is asked.
func (q *query) rate() policy.ZoneRate {
	if q.alias != nil {
		return q.plan.base.Rate
	}
	return q.plan.decision.Rate
}

// overRate replies to a query of a client that would be sent to an upstream beyond the rate of
// its zone. false: it is within the rate, and counts.
func (q *query) overRate(now time.Duration) bool {
	if q.errand != nil || q.client.view == nil {
		return false
	}
	if q.s.inRate(q.client.view, q.rate(), now) {
		return false
	}
	q.limited(policy.LimitRate, dns.RcodeRefused)
	return true
}

// deny replies to a question that a rule denies.
func (q *query) deny(d *policy.Decision) {
	q.closed(rcodes[d.Reply], d.Denied.Rule)
}

// closed replies that a rule denies, nil for the default of NetworkPolicies. The pod learns the
// tier, and not the policy.
func (q *query) closed(rcode int, by *policy.Rule) {
	r, why := answer.Error(q.message(), rcode), "no NetworkPolicy allows the resolver"
	if by != nil {
		why = "denied by a cluster policy (" + by.Tier.String() + ")"
	}
	answer.Explain(r, dns.ExtendedErrorCodeBlocked, why)
	q.reply(q.encode(r), rcode)
}

// note puts a decision into the record: its verdict, the verdict if the Audit policies were
// enforced, and the matches and the rule that decide them.
func (q *query) note(d *policy.Decision) {
	would, w := wouldBe(q.client.view, d)
	r := &q.rec
	r.Verdict, r.Would, r.Matches, r.Via, r.Rule = verdictOf(d), would, d.Matches, "", nil
	if by := d.CountsFor(); by != d.Query.Name || by == r.Left {
		r.Via = by
	}
	if d.Over {
		r.Limit = policy.LimitOpenings
	}
	switch {
	case d.Denied != nil:
		r.Rule = d.Denied.Rule
	case would == audit.NameDenied:
		r.Rule = w.Denied.Rule
	}
	if would == audit.None {
		return
	}
	for _, m := range w.Matches {
		if !slices.Contains(d.Matches, m) {
			r.Matches = append(slices.Clip(r.Matches), m)
		}
	}
}

// suspend begins a wait that one of several events ends.
func (q *query) suspend() (epoch uint64) { return q.wait.epoch.Add(1) }

// resume ends the wait; false: it has ended already, and the query has another owner.
func (q *query) resume(epoch uint64) bool { return q.wait.epoch.CompareAndSwap(epoch, epoch+1) }

// send ends the query with the reply, nil for silence.
func (q *query) send(reply []byte) {
	if reply != nil {
		q.s.step("send")
		q.to.reply(q.withCookie(reply), q.wait.batched)
		q.wait.replied = true
	}
	q.end()
}

// end releases the query's resources and the query itself.
func (q *query) end() {
	q.s.step("end")
	q.release()
	if q.wait.lent {
		return
	}
	q.setup, q.to, q.errand, q.client, q.batch, q.zone, q.missed, q.alias = nil, nil, nil, identity{}, nil, nil, false, nil
	q.plan, q.rec, q.asks = plan{}, audit.Record{}, wire.Query{}
	q.request.reset()
	q.found.Reset()
	q.msg, q.entry, q.how = nil, nil, audit.CacheNone
	q.checked.reset()
	q.granted.reset()
	w := &q.wait
	w.spent, w.batched, w.replied, w.stale = counters.Spent{}, false, false, nil
	queries.Put(q)
}

// release releases the query's resources.
func (q *query) release() {
	slot, to := q.slot, q.to
	q.slot = limit.Slot{}
	if slot.Taken() {
		q.s.clients.Release(slot)
	}
	to.done(q)
}

// broken ends the query after a fault of the proxy, with SERVFAIL if it has no reply
// yet. It is not used again.
func (q *query) broken() {
	q.rec.Verdict, q.rec.Error = audit.Failed, "a fault of the proxy, see its log"
	if !q.wait.replied {
		q.s.replyToFault(func() {
			q.to.reply(wire.ErrorReply(q.packet, dns.RcodeServerFailure), false)
		})
	}
	q.release()
}

// at returns the moment at which the server is so old, as the clock tells it now.
func (s *Server) at(age time.Duration) time.Time {
	now := s.now()
	return now.Add(age - now.Sub(s.started))
}

// inForce tells whether the view, nil for a client that no policy selects, is one of the
// present snapshot.
func (s *Server) inForce(v *policy.View) bool {
	return v == nil || s.snapshot.Load().ViewOf(v.Pod.PodRef) == v
}
