package proxy

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/proxy/wire"
	"github.com/namegate/namegate/share"
)

// usesInFlight is the bound of the queries for names in use that are in flight: clients' queries
// and the upstreams have room beside them.
var usesInFlight = share.Bound{Resource: "queries for names in use", Least: 1, Each: 32, All: 64}

// usePatience is how long a name in use waits for its turn. It is less than the time for
// which its addresses wait for the answer.
const usePatience = 3 * time.Second

// namesInUse are the names whose addresses are in use and end unless an answer holds them.
type namesInUse struct {
	s    *Server
	keep func(n *policy.NameInUse, left []netip.Addr, answered bool) []policy.GrantInfo

	mu      sync.Mutex
	waiting share.Queue[policy.PodRef, *use]
	flying  map[policy.PodRef]int
	all     int // of flying
	closed  bool
}

// use is one question for a name in use, of one family, and the replier of its query.
type use struct {
	of    *namesInUse
	name  *policy.NameInUse
	qtype uint16
	due   []netip.Addr // the addresses in use, of the family
	since time.Duration
	view  *policy.View
	snap  *policy.Snapshot
}

// RenewNames queries names of which a pod uses addresses, as the pod would. The addresses that
// the answers hold stay open, as by any answer, and no other addresses are opened, since no
// client is told them. For addresses in use that the answers do not hold, and that the guard lets through,
// Options.Keep decides. It does not block.
func (s *Server) RenewNames(names []policy.NameInUse) {
	u := &s.inUse
	now := s.elapsed()
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		return
	}
	for i := range names {
		n := &names[i]
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			of := slices.DeleteFunc(slices.Clone(n.Due), func(a netip.Addr) bool { return a.Is4() != (qtype == dns.TypeA) })
			if len(of) > 0 {
				u.waiting.Push(n.Pod, &use{of: u, name: n, qtype: qtype, due: of, since: now})
			}
		}
	}
	u.mu.Unlock()
	u.begin()
}

// begin asks the questions for which there is room, in turns of the pods.
func (u *namesInUse) begin() {
	for {
		q := u.next()
		if q == nil {
			return
		}
		u.s.workers.do(func() {
			if !u.s.protect("a query for a name in use", q.ask) {
				q.end()
			}
		})
	}
}

// next returns the next question, which is in flight from then on; nil if there is none or no room.
func (u *namesInUse) next() *use {
	u.mu.Lock()
	defer u.mu.Unlock()
	pod, q, ok := u.waiting.NextOf(func(pod policy.PodRef) bool { return usesInFlight.Room(u.flying[pod], u.all) > 0 })
	if !ok {
		return nil
	}
	if u.flying == nil {
		u.flying = map[policy.PodRef]int{}
	}
	u.flying[pod]++
	u.all++
	return q
}

// end makes room for further questions.
func (q *use) end() {
	u, pod := q.of, q.name.Pod
	u.mu.Lock()
	u.all--
	if u.flying[pod]--; u.flying[pod] == 0 {
		delete(u.flying, pod)
	}
	u.mu.Unlock()
	u.begin()
}

// stop forgets the names that wait. The ends of queries in flight count no more: the next agent
// judges their names.
func (u *namesInUse) stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed, u.waiting = true, share.Queue[policy.PodRef, *use]{}
}

func (u *namesInUse) stopped() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.closed
}

func (q *use) ask() {
	s := q.of.s
	q.snap = s.snapshot.Load()
	q.view = q.snap.ViewOf(q.name.Pod)
	if q.snap != nil && (q.view == nil || !q.view.InForce()) {
		q.over(nil, true)
		return
	}
	// The first snapshot, by which grants are made already, is published soon.
	if q.snap == nil || s.elapsed()-q.since > usePatience {
		q.over(q.passed(q.due), false)
		return
	}
	s.stats.UseQueries.Add(1)
	question := wire.Question{Name: q.name.Name, Type: q.qtype, Class: dns.ClassINET}
	s.ask(q.view, q.snap, wire.Query{Question: question, Flags: wire.RD}, fromUse, q)
}

// passed returns the addresses that the guard lets through for the name.
func (q *use) passed(addrs []netip.Addr) []netip.Addr {
	setup := q.of.s.setup.Load()
	guard := setup.guard
	if q.view != nil && q.view.Node != nil {
		guard = setup.hostGuard
	}
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return guard.Blocked(q.name.Name, a, q.snap) != "" })
}

// reply implements replier: no client waits.
func (q *use) reply([]byte, bool) {}

// done implements replier.
func (q *use) done(of *query) {
	left, answered := q.due, of.rec.Verdict != audit.Failed
	if answered {
		left = slices.DeleteFunc(slices.Clone(left), func(a netip.Addr) bool {
			return slices.ContainsFunc(of.kept, func(k wire.Address) bool { return k.Addr == a })
		})
	}
	switch of.rec.Verdict {
	case audit.Renewed, audit.Failed, audit.Allowed, audit.Blocked:
		left = q.passed(left)
	default: // the policy closes the name by now
		left = nil
	}
	s := q.of.s
	s.workers.do(func() {
		if !s.protect("a name in use", func() { q.over(left, answered) }) {
			q.end()
		}
	})
}

// over ends a question whose answer lacks addresses in use.
func (q *use) over(left []netip.Addr, answered bool) {
	s := q.of.s
	var kept []policy.GrantInfo
	if len(left) > 0 && !q.of.stopped() {
		kept = q.of.keep(q.name, left, answered)
	}
	why := audit.ByConnection
	if !answered {
		why = audit.Unanswered
	}
	s.stats.AddressesKept.Add(uint64(len(kept)))
	if len(kept) > 0 {
		s.stats.Verdicts.Add(audit.Renewed, q.qtype)
	}
	if len(kept) > 0 && s.log != nil {
		s.protect("the log of a name in use", func() { s.log.Write(q.record(kept, why)) })
	}
	q.end()
}

// record is the line about addresses that stay open without an answer.
func (q *use) record(kept []policy.GrantInfo, why string) audit.Record {
	r := audit.Record{Time: q.of.s.now(), Pod: q.name.Pod, Name: q.name.Name, Type: q.qtype, Class: dns.ClassINET, Verdict: audit.Renewed, Renewed: why, Latency: q.of.s.elapsed() - q.since}
	if v := q.view; v != nil {
		r.Workload, r.Matches = v.Workload, v.Decide(q.name.Name).Matches
		if len(v.Pod.IPs) > 0 {
			r.Address = v.Pod.IPs[0]
		}
	}
	for _, a := range kept {
		i := slices.IndexFunc(r.Answers, func(b audit.Answer) bool { return b.Addr == a.Addr })
		if i < 0 {
			i, r.Answers = len(r.Answers), append(r.Answers, audit.Answer{Addr: a.Addr})
		}
		r.Answers[i].Openings = append(r.Answers[i].Openings, audit.Opened{Ports: a.Ports, Until: a.Until})
	}
	return r
}

// retain leaves the addresses of an answer that are open for the name already.
func (q *query) retain() {
	held := q.to.(*use).name.Held
	kept, free := q.kept[:0], q.free[:0]
	for i, a := range q.kept {
		if slices.Contains(held, a.Addr) {
			kept = append(kept, a)
			if i < len(q.free) {
				free = append(free, q.free[i])
			}
		}
	}
	if q.kept, q.free = kept, free; len(kept) > 0 && q.rec.Verdict == audit.Allowed {
		q.rec.Verdict, q.rec.Renewed = audit.Renewed, audit.ByAnswer
	}
}
