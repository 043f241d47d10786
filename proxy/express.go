package proxy

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/limit"
	"github.com/namegate/namegate/proxy/wire"
)

// express is a query on the short way through the proxy: a plain question for the
// addresses of a name that a policy allows, or of any name if no policy selects the
// asker, to the first upstream of its zone, whose answer is plain too. No goroutine
// waits for it: the reader of the client's socket sends it on, the reader of the
// upstream's has its addresses granted, and who is told that the kernel has them
// sends the reply. Whatever is not as expected goes the long way, where all the
// rules are. Both ways say the same, and share one deadline.
type express struct {
	l       *listener
	setup   *setup
	who     asker
	from    netip.AddrPort
	slot    limit.Slot
	started time.Time
	sent    time.Time // when the upstream's turn came, of selected pods' queries
	opening time.Time // when the kernel's did
	spent   stages
	room    [packetRoom]byte
	view    wire.QueryView // of the packet, in room
	query   wire.Query
	decided policy.Decision
	reply   wire.AnswerView
	granted
	rec audit.Record
	out []byte
	// said: the reply is on its way.
	said bool
	// life is odd while the kernel is waited for: who makes it even goes on.
	life atomic.Uint64
}

var expresses = sync.Pool{New: func() any { return new(express) }}

// express starts an admitted query on the short way, if it is one for it: then it takes
// p over.
func (l *listener) express(q *wire.QueryView, who *asker, from netip.AddrPort, p *limit.Slot, started time.Time) bool {
	t := q.Type()
	if t != dns.TypeA && t != dns.TypeAAAA || q.Class() != dns.ClassINET || len(q.Packet) > packetRoom || who.view != nil && !who.view.Enforced {
		return false
	}
	var room [wire.MaxKey]byte
	key := q.AppendKey(room[:0])
	n := fqdn.Name(wire.KeyName(key))
	var d policy.Decision
	if who.view != nil {
		if d = who.view.Decide(n); !d.Allowed() {
			return false
		}
	}
	setup := l.s.setup.Load()
	if n == aliveName {
		return false
	}
	f := setup.keeper.forward(n)
	if f == nil {
		return false
	}
	l.s.step("decided")
	x := expresses.Get().(*express)
	x.l, x.setup, x.who, x.from, x.slot, x.started, x.view, x.decided, x.said = l, setup, *who, from, *p, started, *q, d, false
	x.view.Packet = x.room[:copy(x.room[:], q.Packet)]
	if x.spent = (stages{}); who.view != nil {
		x.sent = l.s.now()
	}
	x.query = q.Query(n)
	l.work.Add(1)
	fl, first, ok := setup.keeper.flights.board(x)
	if !ok {
		l.work.Done()
		expresses.Put(x)
		return false
	}
	*p = limit.Slot{} // from now on x is the flight's
	if first {
		fl.begin(f, &l.queries)
	}
	return true
}

// answered goes on with the reply that was read.
func (x *express) answered(from netip.AddrPort) {
	s := x.l.s
	mine, waits := true, uint64(0)
	defer func() {
		if r := recover(); r != nil {
			s.fault("a query", r)
			switch {
			case mine:
				x.broken()
			case waits != 0 && x.life.CompareAndSwap(waits, waits+1):
				x.fail(errGranterFault.Error())
			}
		}
	}()
	s.step("answered")
	if !x.reply.Fits(&x.view) || !x.open(from) {
		x.long(&outcome{found: foundOn(x.reply.Message, from)})
		return
	}
	s.step("grant")
	mine = false
	if len(x.grants) == 0 {
		x.send()
		s.replies.Send()
		return
	}
	waits = x.life.Add(1)
	s.overdue.add(s, x, s.elapsed()+x.setup.config.GrantTimeout)
	s.opener.GrantThen(x.grants, x)
}

// open makes the grants and the record. False: the guard has something against an
// address.
func (x *express) open(from netip.AddrPort) bool {
	view, n := x.who.view, x.query.Name
	if view == nil {
		return true
	}
	for _, a := range x.reply.Addrs {
		if x.setup.guard.Blocked(n, a.Addr, x.who.snap) != "" {
			return false
		}
	}
	x.opening = x.l.s.now()
	x.spent.heard(x.opening.Sub(x.sent))
	x.make(view, n, x.decided, x.reply.Addrs, x.opening)
	x.rec = audit.Record{Time: x.started, Pod: view.Pod.PodRef, Workload: view.Workload, Address: x.who.addr, Name: n, Type: x.query.Type, Class: x.query.Class,
		Verdict: audit.Allowed, Matches: x.decided.Matches, Answers: x.answers, Chain: x.reply.Chain, Upstream: from}
	return true
}

// Granted implements Then. Replies that may leave at one moment leave together.
func (x *express) Granted(err error, more bool) {
	s := x.l.s
	defer s.net("the replies to queries")
	x.acknowledged(err)
	if !more {
		s.replies.Send()
	}
}

func (x *express) acknowledged(err error) {
	life := x.life.Load()
	if life%2 == 0 || !x.life.CompareAndSwap(life, life+1) {
		return // it has been given up; nobody uses x again
	}
	defer x.net()
	x.l.s.step("acknowledged")
	if err != nil {
		x.fail(err.Error())
		return
	}
	x.spent.acknowledged(x.l.s.now().Sub(x.opening))
	x.l.s.stats.Grants.Add(1)
	x.l.s.stats.AddressesGranted.Add(uint64(len(x.reply.Addrs)))
	x.send()
}

// send sends the reply: what it opens is open.
func (x *express) send() {
	defer x.net()
	s := x.l.s
	s.step("send")
	x.out = x.reply.AppendReply(x.out[:0], &x.view)
	s.stats.Queries.Add(1)
	s.stats.CacheMisses.Add(1)
	if x.who.view != nil {
		s.stats.verdicts.add(audit.Allowed, x.query.Type)
		x.reply.LowerTTLs(x.out, longestTTL(x.decided))
		x.l.queue(x.out, x.from)
	} else {
		x.l.reply(x.out, x.from)
	}
	x.said = true
	s.step("sent")
	if x.who.view != nil {
		x.account()
	}
	x.end()
}

// net is deferred wherever the query has one owner: a fault ends it.
func (x *express) net() {
	if r := recover(); r != nil {
		x.l.s.fault("a query", r)
		x.broken()
	}
}

// broken ends the query after a fault of the proxy, with SERVFAIL if it has no reply
// yet. It is not used again.
func (x *express) broken() {
	defer x.l.work.Done()
	defer x.l.s.clients.Release(x.slot)
	defer x.l.s.net("the reply to a query")
	if !x.said {
		x.l.s.stats.Queries.Add(1)
		x.l.reply(wire.ErrorReply(x.view.Packet, dns.RcodeServerFailure), x.from)
	}
}

// account counts how long the query took, and logs it.
func (x *express) account() {
	took := x.l.s.now().Sub(x.started)
	x.l.s.stats.latency.ended(x.spent, took)
	if log := x.l.s.log; log != nil {
		x.rec.Latency = took
		log.Write(x.rec)
	}
}

// end gives back what the query holds, and the query.
func (x *express) end() {
	x.l.s.step("end")
	l := x.l
	defer l.work.Done()
	l.s.clients.Release(x.slot)
	x.rec, x.decided = audit.Record{}, policy.Decision{}
	x.granted.reset()
	x.reply.Reset()
	expresses.Put(x)
}

// fail answers SERVFAIL, since the kernel did not take the grant. The query is not
// used again: the kernel's side may still have its grants.
func (x *express) fail(reason string) {
	defer x.net()
	s := x.l.s
	s.step("fail")
	s.stats.GrantFailures.Add(1)
	x.spent.acknowledged(s.now().Sub(x.opening))
	s.crew.do(func() {
		defer x.net()
		x.failed(reason)
		x.fails() // after the log
		s.clients.Release(x.slot)
		x.l.work.Done()
	})
}

// failed counts the query and logs why it has failed.
func (x *express) failed(reason string) {
	s := x.l.s
	defer s.net("the log of a query")
	x.rec.Verdict, x.rec.Error, x.rec.Rcode = audit.Failed, "the kernel did not take the grant: "+reason, dns.RcodeServerFailure
	for i := range x.rec.Answers {
		x.rec.Answers[i].Openings = nil
	}
	s.stats.Queries.Add(1)
	s.stats.CacheMisses.Add(1)
	s.stats.verdicts.add(audit.Failed, x.query.Type)
	x.account()
}

// fails sends SERVFAIL with all that such a reply has.
func (x *express) fails() {
	query := new(dns.Msg)
	if query.Unpack(x.view.Packet) == nil {
		x.l.reply(pack(query, respond(query, dns.RcodeServerFailure), false), x.from)
	}
}

// long sends the query the long way, with its answer or why there is none; nil after a
// fault, so that it asks anew.
func (x *express) long(got *outcome) {
	defer x.net()
	x.l.s.step("long way")
	if x.who.view != nil {
		x.spent.heard(x.l.s.now().Sub(x.sent))
	}
	x.l.s.crew.do(func() {
		l := x.l
		defer x.net()
		l.reply(l.s.handleGiven(x.view.Packet, x.who, false, &begun{x.started, x.spent, got}), x.from)
		x.said = true
		x.end()
	})
}
