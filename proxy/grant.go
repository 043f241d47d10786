package proxy

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/proxy/cache"
	"github.com/namegate/namegate/proxy/wire"
)

// Granter opens answered addresses in the kernel, while no goroutine waits.
type Granter interface {
	// GrantThen tells then that the kernel acknowledged every address of every grant, or
	// an error, which means that the answer must not leave: once, from any goroutine,
	// perhaps before GrantThen returns. It does not block. The grants are lent until then.
	GrantThen(grants []policy.Grant, then GrantCallback)
	// Share returns how many grants one answer may need at most, at least one. It does not block.
	Share() int
	cache.CoverageChecker
}

// GrantCallback takes the result of a GrantThen. It must not block. more: others are
// called at once after it, by the same goroutine. Waits tells whether the result still counts.
type GrantCallback = interface {
	Granted(err error, more bool)
	Waits() bool
}

var errGranterFault = errors.New("a fault on the kernel's side")

// grant has the kept addresses opened for the rules that decide before the reply leaves.
func (q *query) grant() {
	s := q.s
	s.step("grant")
	if v := q.client.view; q.strict {
		if v.Ordered() {
			own, rest := q.lasting()
			q.make(v, &q.decision, true, own, nil, q.base)
			if len(rest) > 0 {
				ask := q.decision.Query
				ask.Outside = true
				d := policy.Decide(v, ask)
				q.make(v, &d, true, rest, nil, q.base)
			}
		}
		if q.errand.is(forUse) {
			q.retain()
		}
		q.make(v, &q.decision, false, q.kept, q.free, q.base)
	}
	if len(q.grants) == 0 {
		q.replyGranted()
		return
	}
	if q.how != audit.CacheNone && s.granter.Covered(q.grants) {
		q.acknowledged(nil) // by an earlier grant: a slow kernel delays no answer that is open
		return
	}
	epoch := q.suspend()
	s.timeouts.add(s, q, epoch, q.wait.answered.Sub(s.started)+q.setup.config.GrantTimeout)
	if !s.protect("a grant", func() { s.granter.GrantThen(q.grants, q) }) && q.resume(epoch) {
		q.notGranted(errGranterFault.Error())
	}
}

// lasting returns the addresses for rules that deny or pass: all of the answer, but where no pod
// asked those that the guard left. Else the owner of a denied name could deny every pod the
// addresses inside the cluster. Of a name of the cluster, rest counts for rules that deny alone.
func (q *query) lasting() (own, rest []wire.Address) {
	asked := !q.errand.is(forWarmUp) && !q.errand.is(forUse)
	if asked && !q.decision.Query.InCluster {
		return q.listed, nil
	}
	for i, a := range q.listed {
		switch {
		case q.verdicts[i].Reason == "":
			own = append(own, a)
		case asked:
			rest = append(rest, a)
		}
	}
	return own, rest
}

// Granted implements GrantCallback. Replies that may leave at one moment leave together.
func (q *query) Granted(err error, more bool) {
	s := q.s
	if epoch := q.wait.epoch.Load(); epoch%2 == 1 && q.resume(epoch) { // else it was given up, and is not used again
		q.protect(func() { q.acknowledged(err) })
	}
	if !more {
		s.protect("the replies to queries", s.listener.SendReplies)
	}
}

// Waits implements GrantCallback.
func (q *query) Waits() bool { return q.wait.epoch.Load()%2 == 1 }

func (q *query) acknowledged(err error) {
	s := q.s
	s.step("acknowledged")
	if err != nil {
		q.notGranted(err.Error())
		return
	}
	q.wait.spent.Acknowledged(s.now().Sub(q.wait.answered))
	s.stats.Grants.Add(1)
	switch q.rec.Verdict {
	case audit.Allowed:
		s.stats.AddressesGranted.Add(uint64(len(q.kept)))
	case audit.Renewed:
		s.stats.AddressesRenewed.Add(uint64(len(q.kept)))
	}
	if q.overUDP() && q.inPlace() {
		q.wait.batched = true
		q.replyGranted()
		return
	}
	q.do(q.replyGranted)
}

// notGranted answers SERVFAIL, since the kernel did not take the grant. The query is not
// used again: the kernel's side may still have its grants.
func (q *query) notGranted(reason string) {
	s := q.s
	q.wait.lent = true
	s.stats.GrantFailures.Add(1)
	q.wait.spent.Acknowledged(s.now().Sub(q.wait.answered))
	q.do(func() {
		s.step("not granted")
		for i := range q.rec.Answers {
			q.rec.Answers[i].Openings = nil
		}
		q.single = false
		q.fail("the kernel did not take the grant: " + reason)
	})
}

// replyGranted replies with the addresses that are open.
func (q *query) replyGranted() {
	q.s.step("granted")
	if !q.follow() {
		q.fail("too many names lead to others")
		return
	}
	q.replyAnswer()
}

// granted has the grants of an answer, in reused slices.
type granted struct {
	grants   []policy.Grant
	answers  []audit.Answer
	addrs    []netip.Addr
	openings []policy.Opening
	opened   []audit.Opened
	shut     []fqdn.Name // that led to the question, and may not open its addresses
}

// make adds the grants of the addresses: for the rules that deny or pass, if lasting, else for
// those that accept, with the openings for the log: at are their indexes in answers. An address
// that the decision does not open has no opening. Nearly always all addresses share one TTL, and none
// is inside the cluster where that counts, and so one grant a port set.
func (q *query) make(v *policy.View, d *policy.Decision, lasting bool, addrs []wire.Address, at []int, now time.Time) {
	g := &q.granted
	inside := func(i int) bool { return q.places && i < len(at) && q.verdicts[at[i]].Inside }
	for i, a := range addrs {
		alike := func(j int) bool { return addrs[j].TTL == a.TTL && inside(j) == inside(i) }
		from, opened, done := len(g.addrs), len(g.opened), false
		for j := range addrs {
			if alike(j) {
				g.addrs, done = append(g.addrs, addrs[j].Addr), done || j < i
			}
		}
		if done {
			g.addrs = g.addrs[:from]
			continue
		}
		all := g.addrs[from:len(g.addrs):len(g.addrs)]
		g.openings = d.AppendOpenings(g.openings[:0], a.TTL)
		for _, o := range g.openings {
			if o.Lifetime <= 0 || o.Rule.Lasting() != lasting || !lasting && slices.Contains(g.shut, o.Name) || o.Rule.ServerName() && inside(i) {
				continue
			}
			until := now.Add(o.Lifetime)
			g.grants = append(g.grants, policy.Grant{Pod: v.Pod.PodRef, Name: o.Name, Addrs: all, Ports: o.Ports, Rule: o.Rule, Deadline: until, By: o.By, View: v})
			if lasting {
				continue
			}
			g.opened = append(g.opened, audit.Opened{Ports: o.Ports, Until: until})
		}
		some := len(g.opened) > opened
		for j := i; j < len(addrs) && (some || inside(i)); j++ {
			switch {
			case !alike(j):
			case some:
				g.answers[at[j]].Openings = g.opened[opened:len(g.opened):len(g.opened)]
			default:
				g.answers[at[j]].Blocked = audit.BlockedInside
			}
		}
	}
}

// reset empties the slices and drops their references.
func (g *granted) reset() {
	clear(g.grants)
	clear(g.answers)
	clear(g.openings)
	g.grants, g.answers, g.addrs, g.openings, g.opened, g.shut = g.grants[:0], g.answers[:0], g.addrs[:0], g.openings[:0], g.opened[:0], g.shut[:0]
}

// longestTTL returns the TTL in seconds that a pod may be told at most, so that every port set
// and every rule for which the decision opens addresses is open for at least as long.
func longestTTL(d *policy.Decision) uint32 {
	return uint32(min(max(d.LongestTTL()/time.Second, 0), wire.MaxTTL))
}

// grantTick is half of how late the end of a wait for the kernel may be noticed.
const grantTick = 20 * time.Millisecond

// grantTimeouts end the waits for a kernel that does not answer: a timer for each would
// cost more than the wait does.
type grantTimeouts struct {
	mu      sync.Mutex
	waits   []grantWait   // those that ended since the last tick included
	ticked  time.Duration // the last tick, on the server's clock
	running bool
}

type grantWait struct {
	q     *query
	epoch uint64
	at    time.Duration // on the server's clock
}

// add notes that a query waits for the kernel until the moment at.
func (t *grantTimeouts) add(s *Server, q *query, epoch uint64, at time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waits = append(t.waits, grantWait{q, epoch, at})
	if !t.running {
		t.running = true
		time.AfterFunc(grantTick, func() { t.tick(s) })
	}
}

// tick gives up what waits for too long, and comes again while anything waits. What was
// late at the last tick is late: where the process did not run for a while, what the
// kernel acknowledged meanwhile comes together with the tick.
func (t *grantTimeouts) tick(s *Server) {
	now := s.elapsed()
	t.mu.Lock()
	var late []grantWait
	t.waits = slices.DeleteFunc(t.waits, func(w grantWait) bool {
		if w.q.wait.epoch.Load() != w.epoch { // it has ended
			return true
		}
		if w.at <= t.ticked {
			late = append(late, w)
		}
		return w.at <= t.ticked
	})
	if t.ticked, t.running = now, len(t.waits) > 0; t.running {
		time.AfterFunc(grantTick, func() { t.tick(s) })
	}
	t.mu.Unlock()
	for _, w := range late {
		if w.q.resume(w.epoch) {
			w.q.protect(func() { w.q.notGranted("it did not acknowledge in time") })
		}
	}
}
