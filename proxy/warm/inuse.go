package warm

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/share"
)

// InFlight is the bound of the questions for names in use that are in flight: clients' queries
// and the upstreams have room beside them.
var InFlight = share.Bound{Resource: "queries for names in use", Least: 1, Each: 32, All: 64}

// Patience is how long a name in use waits for its turn. It is less than the time for
// which its addresses wait for the answer.
const Patience = 3 * time.Second

// Keep is told the names in use whose answers lack addresses, and returns the grants that it prolongs.
type Keep = func(n *policy.NameInUse, left []netip.Addr, answered bool) []policy.GrantInfo

// InUse asks for names whose addresses are in use and end unless an answer holds them.
type InUse struct {
	p    *Proxy
	keep Keep

	mu      sync.Mutex
	waiting share.Queue[policy.PodRef, *use]
	flying  map[policy.PodRef]int
	all     int // of flying
	closed  bool
}

// NewInUse returns an InUse without names.
func NewInUse(p *Proxy, keep Keep) *InUse {
	return &InUse{p: p, keep: keep, flying: map[policy.PodRef]int{}}
}

// use is one question for a name in use, of one family.
type use struct {
	of    *InUse
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
// Keep decides. It does not block.
func (u *InUse) RenewNames(names []policy.NameInUse) {
	now := u.p.Elapsed()
	u.mu.Lock()
	for i := range names {
		n := &names[i]
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			of := slices.DeleteFunc(slices.Clone(n.Due), func(a netip.Addr) bool { return a.Is4() != (qtype == dns.TypeA) })
			if len(of) > 0 && !u.closed {
				u.waiting.Push(n.Pod, &use{of: u, name: n, qtype: qtype, due: of, since: now})
			}
		}
	}
	u.mu.Unlock()
	u.begin()
}

// begin asks the questions for which there is room, in turns of the pods.
func (u *InUse) begin() {
	for q := u.next(); q != nil; q = u.next() {
		u.do("a query for a name in use", q, q.ask)
	}
}

// do runs a step of a question on another goroutine. A fault ends the question.
func (u *InUse) do(what string, q *use, step func()) {
	u.p.Do(func() {
		if !u.p.Protect(what, step) {
			q.end()
		}
	})
}

// next returns the next question, which is in flight from then on; nil if there is none or no room.
func (u *InUse) next() *use {
	u.mu.Lock()
	defer u.mu.Unlock()
	pod, q, ok := u.waiting.NextOf(func(pod policy.PodRef) bool { return InFlight.Room(u.flying[pod], u.all) > 0 })
	if !ok {
		return nil
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

// Stop forgets the names that wait. The ends of queries in flight count no more: the next agent
// judges their names.
func (u *InUse) Stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed, u.waiting = true, share.Queue[policy.PodRef, *use]{}
}

// State returns how many questions are in flight, and whether it is stopped.
func (u *InUse) State() (inFlight int, stopped bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all, u.closed
}

func (q *use) ask() {
	p := q.of.p
	q.snap = p.Snapshot()
	q.view = q.snap.ViewOf(q.name.Pod)
	if q.snap != nil && (q.view == nil || !q.view.InForce()) {
		q.over(nil, true)
		return
	}
	// The first snapshot, by which grants are made already, is published soon.
	if q.snap == nil || p.Elapsed()-q.since > Patience {
		q.over(q.passed(q.due), false)
		return
	}
	p.Ask(Question{View: q.view, Snap: q.snap, Name: q.name.Name, Type: q.qtype, InUse: true, Held: q.name.Held}, q.answered)
}

// passed returns the addresses that the guard lets through for the name.
func (q *use) passed(addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return !q.of.p.Passes(q.view, q.snap, q.name.Name, a) })
}

// answered judges the answer.
func (q *use) answered(r Result) {
	left, answered := q.due, r.Verdict != audit.Failed
	if answered {
		left = slices.DeleteFunc(slices.Clone(left), func(a netip.Addr) bool { return slices.Contains(r.Kept, a) })
	}
	switch r.Verdict {
	case audit.Renewed, audit.Failed, audit.Allowed, audit.Blocked:
		left = q.passed(left)
	default: // the policy closes the name by now
		left = nil
	}
	q.of.do("a name in use", q, func() { q.over(left, answered) })
}

// over ends a question whose answer lacks addresses in use.
func (q *use) over(left []netip.Addr, answered bool) {
	var kept []policy.GrantInfo
	if _, stopped := q.of.State(); len(left) > 0 && !stopped {
		kept = q.of.keep(q.name, left, answered)
	}
	why := audit.ByConnection
	if !answered {
		why = audit.Unanswered
	}
	if len(kept) > 0 {
		q.of.p.Kept(q.record(kept, why), len(kept))
	}
	q.end()
}

// record is the line about addresses that stay open without an answer.
func (q *use) record(kept []policy.GrantInfo, why string) audit.Record {
	r := audit.Record{Pod: q.name.Pod, Name: q.name.Name, Type: q.qtype, Class: dns.ClassINET, Verdict: audit.Renewed, Renewed: why, Latency: q.of.p.Elapsed() - q.since}
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
