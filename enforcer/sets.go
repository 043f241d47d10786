package enforcer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
)

// setBuckets is the initial size of a grant set: most pods hold few addresses,
// and the kernel's default costs sixteen times the memory.
const setBuckets = 64

// refusalsMax is how often a set that the kernel refuses holds everything up.
const refusalsMax = 3

// readySets creates the sets of a plan that are not there. A set that an earlier
// agent left is adopted with its entries. One that the kernel refuses is missing
// in its pod's plan, and that is an error a few times; then the pod is left closed
// there, so that the others are not held up for ever.
func (e *Enforcer) readySets(plan map[policy.PodRef]*podPlan) error {
	if e.doubtful {
		if err := e.restoreSets(); err != nil {
			return err
		}
		e.doubtful = false
	}
	for _, p := range plan {
		p.missing = nil
	}
	fresh, left := e.newSets(plan)
	peers := askedPeers(plan)
	freshPeers, leftPeers := e.newPeerSets(peers)
	ready, gone, err := e.adopt(left, leftPeers)
	if err != nil {
		return err
	}
	fresh = append(fresh, gone...)
	var failed error
	for _, s := range fresh {
		err := e.k.Sets.Ensure(grantSetHeader(s.name, s.key))
		if err == nil {
			ready = append(ready, s)
			continue
		}
		p := plan[s.key.pod]
		if p.missing == nil {
			p.missing = map[policy.PortSet]bool{}
		}
		p.missing[s.key.ports] = true
		failed = fmt.Errorf("set of pod %s for %s: %w", s.key.pod, s.key.ports, err)
	}
	e.include(ready)
	for _, s := range ready {
		delete(e.found, s.name)
	}
	if err := e.readyPeers(peers, freshPeers, leftPeers); err != nil {
		failed = err
	}
	switch {
	case failed == nil:
		e.refusals = 0
		return nil
	case e.refusals < refusalsMax:
		e.refusals++
		return failed
	case e.refusals == refusalsMax:
		e.refusals++
		e.log.Error("the kernel refuses sets; what they are for stays closed, the rest goes on", "error", failed)
	}
	return nil
}

// newSets returns the sets of a plan that are not in the table yet: those that are to
// be made, and those that are there already, by name.
func (e *Enforcer) newSets(plan map[policy.PodRef]*podPlan) (fresh []*grantSet, left map[string]*grantSet) {
	left = map[string]*grantSet{}
	for key := range grantKeys(plan) {
		if e.grants.get(key) != nil {
			continue
		}
		s := &grantSet{name: grantSetName(key.pod, key.ports, key.family), key: key, table: e.grants, entries: map[netip.Addr]*grant{}, past: newHistory()}
		if e.found[s.name] {
			left[s.name] = s
		} else {
			fresh = append(fresh, s)
		}
	}
	return fresh, left
}

// include takes ready sets into the table, with what they hold.
func (e *Enforcer) include(ready []*grantSet) {
	if len(ready) == 0 {
		return
	}
	e.grants.plan.Lock()
	defer e.grants.plan.Unlock()
	for _, s := range ready {
		for a, g := range s.entries {
			e.enqueue(s, a, g)
		}
	}
	e.grants.include(ready)
}

func grantSetHeader(name string, key grantKey) ipset.Set {
	return ipset.Set{
		Name: name, Type: ipset.HashIP, IPv6: key.family == iptables.IPv6,
		Timeout: true, Comment: true, HashSize: setBuckets,
	}
}

// adopt reads back what sets hold that the kernel has already, all in one listing, and
// returns those which it does not have any more, or which are another program's. An
// entry without a reason that can be read is nobody's: Commit takes it out, like every
// one that no policy allows.
func (e *Enforcer) adopt(left map[string]*grantSet, peers map[string]*peerSet) (ready, gone []*grantSet, err error) {
	if len(left)+len(peers) == 0 {
		return nil, nil, nil
	}
	at, there := e.instant(), map[string]bool{}
	err = e.k.Sets.ListAll(func(head ipset.Set, entries []ipset.Entry) {
		if p := peers[head.Name]; p != nil {
			p.take(head, entries)
			return
		}
		s := left[head.Name]
		if s == nil || head.Type != ipset.HashIP || head.IPv6 != (s.key.family == iptables.IPv6) {
			return
		}
		there[s.name] = true
		for _, entry := range entries {
			g := newGrant()
			g.reasons = append(g.reasons, readEntry(entry, at)...)
			s.entries[entry.Addr] = g
		}
	})
	if err != nil {
		return nil, nil, err
	}
	for _, s := range left {
		if there[s.name] {
			ready = append(ready, s)
		} else {
			gone = append(gone, s)
		}
	}
	return ready, gone, nil
}

// readEntry returns the reasons of an entry that another agent wrote. None lasts
// longer than the kernel keeps the entry.
func readEntry(entry ipset.Entry, at instant) []reason {
	rs := parseComment(entry.Comment, at.epoch)
	if entry.Timeout > 0 {
		for i := range rs {
			rs[i].until = min(rs[i].until, at.now+moment(entry.Timeout))
		}
	}
	return rs
}

// carryOver lets grants be made under the views of the last snapshot and of the
// coming one, and opens in a changed view's sets what the pod's names had opened
// in the others, with the deadlines that they had.
func (e *Enforcer) carryOver(coming *policy.Snapshot) error {
	for ref, p := range *e.grants.pods.Load() {
		now, next := e.snapshot.ViewOf(ref), coming.ViewOf(ref)
		if now == next {
			continue
		}
		if now != nil && next != nil && lost(now, next) {
			e.rejudge[ref] = true
		}
		if err := e.carry(p, now, next); err != nil {
			return err
		}
	}
	return nil
}

// carry is carryOver for one pod.
func (e *Enforcer) carry(p *podGrants, now, next *policy.View) error {
	e.grants.plan.Lock()
	defer e.grants.plan.Unlock()
	p.changed = true
	p.views = slices.DeleteFunc([]*policy.View{now, next}, func(v *policy.View) bool { return v == nil })
	if next == nil {
		return nil
	}
	live, past := p.moves(next)
	e.batch.begin(e.instant())
	for _, m := range live {
		e.batch.stage(m.to, m.addr, m.reason)
	}
	e.writeBatch(&e.batch)
	for i := range e.batch.sets {
		if err := e.batch.sets[i].err; err != nil {
			return err
		}
	}
	for _, m := range past {
		m.to.mu.Lock()
		m.to.past.remember(m.addr, []reason{m.reason})
		m.to.mu.Unlock()
	}
	return nil
}

// move is a reason that a view grants on another port set too.
type move struct {
	to     *grantSet
	addr   netip.Addr
	reason reason
}

// moves returns what a view moves of live grants and of ended ones.
func (p *podGrants) moves(v *policy.View) (live, past []move) {
	for s := range p.all() {
		for a, g := range s.entries {
			live = p.move(live, v, s, a, g.reasons)
		}
		for a, rs := range s.past.reasons {
			past = p.move(past, v, s, a, rs)
		}
	}
	return live, past
}

func (p *podGrants) move(out []move, v *policy.View, s *grantSet, a netip.Addr, rs []reason) []move {
	for _, r := range rs {
		for _, o := range v.Decide(r.name).Openings(0) {
			to := (*p.sets.Load())[o.Ports][slot(s.key.family)]
			if to != nil && to != s {
				out = append(out, move{to, a, reason{r.name, r.until, originOf(o.By)}})
			}
		}
	}
	return out
}

// lost tells whether a view lacks a match that the last one opened ports by.
func lost(last, next *policy.View) bool {
	type opens struct{ pattern, ports string }
	each := func(v *policy.View, do func(opens)) {
		for _, r := range v.Rules {
			for _, m := range r.Matches {
				if !m.Audit {
					do(opens{m.Pattern.String(), string(m.Ports)})
				}
			}
		}
	}
	kept, missing := map[opens]bool{}, false
	each(next, func(o opens) { kept[o] = true })
	each(last, func(o opens) { missing = missing || !kept[o] })
	return missing
}

// dropSets takes back every grant that the snapshot in force does not allow,
// gives up the sets that no chain asks any more, and notes what it took back. Pods that
// a part of what is coming has left out have their grants by both.
func (e *Enforcer) dropSets(plan map[policy.PodRef]*podPlan) error {
	for ref, p := range *e.grants.pods.Load() {
		view := e.snapshot.ViewOf(ref)
		if view != e.coming.ViewOf(ref) {
			continue
		}
		if err := e.drop(p, view, plan); err != nil {
			return err
		}
	}
	return nil
}

// destroyFound destroys the sets that no chain asks any more.
func (e *Enforcer) destroyFound() error {
	for name := range e.found {
		err := e.k.Sets.Destroy(name)
		switch {
		case err == nil, ipset.IsNotFound(err):
			delete(e.found, name)
		case ipset.IsBusy(err):
			e.log.Warn("a set that no policy needs stays; a rule that is not ours refers to it", "set", name)
		default:
			return err
		}
	}
	return nil
}

// drop is dropSets for one pod.
func (e *Enforcer) drop(p *podGrants, view *policy.View, plan map[policy.PodRef]*podPlan) error {
	e.grants.plan.Lock()
	defer e.grants.plan.Unlock()
	if p.changed {
		p.views = slices.DeleteFunc([]*policy.View{view}, func(v *policy.View) bool { return v == nil })
	}
	for s := range p.all() {
		keep := asks(plan, s.key)
		if keep && !p.changed {
			continue
		}
		if err := e.takeBack(s, view, keep); err != nil {
			return err
		}
		if !keep {
			e.grants.exclude(s)
			e.found[s.name] = true
		}
	}
	p.changed = false
	return nil
}

// rejudgeLeft notes the pods of which an earlier agent left a set that no policy
// needs any more: what it held is not known, and what it had opened is to be cut.
func (e *Enforcer) rejudgeLeft(plan map[policy.PodRef]*podPlan) {
	pods := map[string]policy.PodRef{}
	for ref := range plan {
		pods[podID(ref)] = ref
	}
	for name := range e.found {
		if _, rest, ok := strings.Cut(name, "-"); ok {
			id, _, _ := strings.Cut(rest, "-")
			if ref, ours := pods[id]; ours {
				e.rejudge[ref] = true
			}
		}
	}
}

// takeBack removes from a set the reasons that a view does not allow, and the
// addresses that are left without one. Where the last reason to end is gone, the
// address ends earlier. The mirror follows the kernel: after an error it still
// holds what is to be taken back, in doubt. The caller holds plan.
func (e *Enforcer) takeBack(s *grantSet, view *policy.View, keep bool) error {
	allowed := func(r reason) bool { return keep && viewAllows(view, r.name, s.key.ports) }
	at := e.instant()
	if view != nil {
		s.tell(e.takenBack, allowed, at)
	}
	var touched []netip.Addr
	left := map[netip.Addr]*grant{}
	var gone, shorter []ipset.Entry
	for a, g := range s.entries {
		kept := filter(g.reasons, allowed)
		if len(kept) > 0 && len(kept) == len(g.reasons) {
			continue
		}
		touched = append(touched, a)
		if len(kept) == 0 {
			gone = append(gone, ipset.Entry{Addr: a})
			continue
		}
		c := &grant{queued: g.queued, reasons: kept}
		left[a] = c
		shorter = append(shorter, e.entry(a, c, at))
	}
	if p := e.plan[s.key.pod]; p != nil && len(gone) > 0 {
		if err := e.owe(p.addrs); err != nil {
			return err
		}
	}
	s.doubtAll(touched)
	if keep { // else the set goes as a whole
		if err := e.k.Sets.Delete(s.name, gone...); err != nil {
			return err
		}
		if err := e.k.Sets.Add(s.name, shorter...); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range gone {
		e.rejudge[s.key.pod] = true
		s.remove(g.Addr)
	}
	for a, g := range left {
		e.enqueue(s, a, g)
		s.put(a, g, true)
	}
	if s.past.prune(allowed) > 0 {
		e.rejudge[s.key.pod] = true
	}
	return nil
}

func filter(rs []reason, keep func(reason) bool) []reason {
	var out []reason
	for _, r := range rs {
		if keep(r) {
			out = append(out, r)
		}
	}
	return out
}

// historyMax bounds how many ended grants a set remembers.
const historyMax = 1024

// history is what a set had open: connections outlive their grants, and when a
// policy goes, so must the connections that it had allowed.
type history struct {
	reasons map[netip.Addr][]reason
	order   []netip.Addr
}

func newHistory() *history { return &history{reasons: map[netip.Addr][]reason{}} }

// remember keeps an ended grant beside what was remembered of the address; the
// address that ended first is forgotten for it when there are too many.
func (h *history) remember(a netip.Addr, rs []reason) {
	old, there := h.reasons[a]
	if !there {
		h.order = append(h.order, a)
	}
	g := grant{reasons: slices.Clone(old)}
	for _, r := range rs {
		g.add(r, ever)
	}
	h.reasons[a] = g.reasons
	for len(h.order) > historyMax {
		delete(h.reasons, h.order[0])
		h.order = h.order[1:]
	}
}

// prune forgets the reasons that are not kept and returns how many addresses are
// left without one.
func (h *history) prune(keep func(reason) bool) int {
	gone := 0
	for a, rs := range h.reasons {
		if kept := filter(rs, keep); len(kept) > 0 {
			h.reasons[a] = kept
			continue
		}
		delete(h.reasons, a)
		gone++
	}
	h.order = slices.DeleteFunc(h.order, func(a netip.Addr) bool { return h.reasons[a] == nil })
	return gone
}
