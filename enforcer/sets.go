package enforcer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/ipset"
	"github.com/namegate/namegate/enforcer/iptables"
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
	var failed error
	for _, p := range plan {
		p.missing = nil
	}
	for name, key := range grantSets(plan) {
		if e.hasSet(key) {
			continue
		}
		err := e.readySet(name, key)
		if err == nil {
			continue
		}
		p := plan[key.pod]
		if p.missing == nil {
			p.missing = map[policy.PortSet]bool{}
		}
		p.missing[key.ports] = true
		failed = fmt.Errorf("set of pod %s for %s: %w", key.pod, key.ports, err)
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

func (e *Enforcer) hasSet(key grantKey) bool {
	e.grants.mu.RLock()
	defer e.grants.mu.RUnlock()
	p := e.grants.pods[key.pod]
	return p != nil && p.sets[key] != nil
}

func (e *Enforcer) readySet(name string, key grantKey) error {
	s := &grantSet{name: name, key: key, entries: map[netip.Addr]*grant{}, past: newHistory()}
	if err := e.k.Sets.Ensure(grantSetHeader(name, key)); err != nil {
		return err
	}
	if e.found[name] {
		if err := e.adopt(s); err != nil {
			return err
		}
		delete(e.found, name)
	}
	e.grants.mu.Lock()
	defer e.grants.mu.Unlock()
	p := e.grants.pods[key.pod]
	if p == nil {
		p = &podGrants{sets: map[grantKey]*grantSet{}, changed: true}
		e.grants.pods[key.pod] = p
	}
	p.sets[key] = s
	return nil
}

func grantSetHeader(name string, key grantKey) ipset.Set {
	return ipset.Set{
		Name: name, Type: ipset.HashIP, IPv6: key.family == iptables.IPv6,
		Timeout: true, Comment: true, HashSize: setBuckets,
	}
}

// adopt reads back what the kernel holds. An entry without a reason that can be
// read is nobody's: Commit takes it out, like every one that no policy allows.
func (e *Enforcer) adopt(s *grantSet) error {
	entries, err := e.k.Sets.List(s.name)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		g := &grant{reasons: parseComment(entry.Comment)}
		s.entries[entry.Addr] = g
		e.enqueue(s, entry.Addr, g)
	}
	return nil
}

// carryOver lets grants be made under the views of the last snapshot and of the
// coming one, and opens in a changed view's sets what the pod's names had opened
// in the others, with the deadlines that they had.
func (e *Enforcer) carryOver(coming *policy.Snapshot) error {
	e.grants.mu.Lock()
	defer e.grants.mu.Unlock()
	for ref, p := range e.grants.pods {
		now, next := e.snapshot.ViewOf(ref), coming.ViewOf(ref)
		if now == next {
			continue
		}
		if now != nil && next != nil && lost(now, next) {
			e.rejudge[ref] = true
		}
		p.changed = true
		p.views = slices.DeleteFunc([]*policy.View{now, next}, func(v *policy.View) bool { return v == nil })
		if next == nil {
			continue
		}
		live, past := p.moves(next)
		for _, m := range live {
			if err := e.extend(m.to, []netip.Addr{m.addr}, m.reason); err != nil {
				return err
			}
		}
		for _, m := range past {
			m.to.mu.Lock()
			m.to.past.remember(m.addr, []reason{m.reason})
			m.to.mu.Unlock()
		}
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
	for _, s := range p.sets {
		s.mu.Lock()
		for a, g := range s.entries {
			live = p.move(live, v, s, a, g.reasons)
		}
		for a, rs := range s.past.reasons {
			past = p.move(past, v, s, a, rs)
		}
		s.mu.Unlock()
	}
	return live, past
}

func (p *podGrants) move(out []move, v *policy.View, s *grantSet, a netip.Addr, rs []reason) []move {
	for _, r := range rs {
		for _, o := range v.Decide(r.name).Openings(0) {
			to := p.sets[grantKey{s.key.pod, o.Ports, s.key.family}]
			if to != nil && to != s {
				out = append(out, move{to, a, reason{r.name, r.until, o.By}})
			}
		}
	}
	return out
}

// lost tells whether a view lacks a match that the last one opened ports by.
func lost(last, next *policy.View) bool {
	kept := map[string]bool{}
	for _, en := range next.Entries {
		for _, n := range en.Destinations.Names {
			kept[n.String()+" "+string(en.Ports)] = !en.Audit || kept[n.String()+" "+string(en.Ports)]
		}
	}
	for _, en := range last.Entries {
		for _, n := range en.Destinations.Names {
			if !en.Audit && !kept[n.String()+" "+string(en.Ports)] {
				return true
			}
		}
	}
	return false
}

// dropSets takes back every grant that the snapshot in force does not allow,
// destroys the sets that no chain asks any more, and notes what it took back.
func (e *Enforcer) dropSets(plan map[policy.PodRef]*podPlan) error {
	e.grants.mu.Lock()
	defer e.grants.mu.Unlock()
	wanted := grantSets(plan)
	for ref, p := range e.grants.pods {
		view := e.snapshot.ViewOf(ref)
		if p.changed {
			p.views = slices.DeleteFunc([]*policy.View{view}, func(v *policy.View) bool { return v == nil })
		}
		for key, s := range p.sets {
			if _, keep := wanted[s.name]; keep && !p.changed {
				continue
			} else if err := e.takeBack(s, view, keep); err != nil {
				return err
			} else if !keep {
				delete(p.sets, key)
				e.found[s.name] = true
			}
		}
		p.changed = false
		if len(p.sets) == 0 {
			delete(e.grants.pods, ref)
		}
	}
	e.rejudgeLeft(plan)
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
// holds what is to be taken back.
func (e *Enforcer) takeBack(s *grantSet, view *policy.View, keep bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	allowed := func(r reason) bool { return keep && viewAllows(view, r.name, s.key.ports) }
	left := map[netip.Addr]*grant{}
	var gone, shorter []ipset.Entry
	for a, g := range s.entries {
		c := g.clone()
		c.reasons = filter(g.reasons, allowed)
		switch {
		case len(c.reasons) == 0:
			gone = append(gone, ipset.Entry{Addr: a})
		case len(c.reasons) < len(g.reasons):
			left[a] = c
			shorter = append(shorter, e.entry(a, c))
		}
	}
	if keep { // else the set goes as a whole
		if err := e.k.Sets.Delete(s.name, gone...); err != nil {
			return err
		}
		if err := e.k.Sets.Add(s.name, shorter...); err != nil {
			return err
		}
	}
	for _, g := range gone {
		e.rejudge[s.key.pod] = true
		delete(s.entries, g.Addr)
	}
	for a, g := range left {
		e.enqueue(s, a, g)
		s.entries[a] = g
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
		g.add(r, time.Time{})
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
