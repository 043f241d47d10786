package enforcer

import (
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/ipset"
	"github.com/namegate/namegate/enforcer/iptables"
	"github.com/namegate/namegate/policy"
)

// setBuckets is the initial size of a grant set: most pods hold few addresses,
// and the kernel's default costs sixteen times the memory.
const setBuckets = 64

// readySets creates the sets of a plan that are not there. A set that an earlier
// agent left is adopted with its entries.
func (e *Enforcer) readySets(plan map[policy.PodRef]*podPlan) error {
	for name, key := range grantSets(plan) {
		e.grants.mu.RLock()
		p := e.grants.pods[key.pod]
		there := p != nil && p.sets[key] != nil
		e.grants.mu.RUnlock()
		if there {
			continue
		}
		s := &grantSet{name: name, key: key, entries: map[netip.Addr]*grant{}, past: newHistory()}
		err := e.k.Sets.Ensure(ipset.Set{
			Name: name, Type: ipset.HashIP, IPv6: key.family == iptables.IPv6,
			Timeout: true, Comment: true, HashSize: setBuckets,
		})
		if err != nil {
			return err
		}
		if e.found[name] {
			if err := e.adopt(s); err != nil {
				return err
			}
			delete(e.found, name)
		}
		e.grants.mu.Lock()
		if p = e.grants.pods[key.pod]; p == nil {
			p = &podGrants{sets: map[grantKey]*grantSet{}}
			e.grants.pods[key.pod] = p
		}
		p.sets[key] = s
		e.grants.mu.Unlock()
	}
	return nil
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
		p.changed = true
		p.views = slices.DeleteFunc([]*policy.View{now, next}, func(v *policy.View) bool { return v == nil })
		if next == nil {
			continue
		}
		for _, m := range p.moves(next) {
			if err := e.extend(m.to, []netip.Addr{m.addr}, m.reason); err != nil {
				return err
			}
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

func (p *podGrants) moves(v *policy.View) []move {
	var out []move
	for _, s := range p.sets {
		s.mu.Lock()
		for a, g := range s.entries {
			for _, r := range g.reasons {
				for _, o := range v.Decide(r.name).Openings(0) {
					to := p.sets[grantKey{s.key.pod, o.Ports, s.key.family}]
					if to != nil && to != s {
						out = append(out, move{to, a, reason{r.name, r.until, o.By}})
					}
				}
			}
		}
		s.mu.Unlock()
	}
	return out
}

// revoked is what a snapshot took back from one pod, by address.
type revoked map[policy.PodRef]map[netip.Addr][]policy.PortSet

func (r revoked) add(key grantKey, a netip.Addr) {
	if r[key.pod] == nil {
		r[key.pod] = map[netip.Addr][]policy.PortSet{}
	}
	r[key.pod][a] = append(r[key.pod][a], key.ports)
}

// dropSets takes back every grant that the snapshot in force does not allow,
// destroys the sets that no chain asks any more, and returns what it took back.
func (e *Enforcer) dropSets(plan map[policy.PodRef]*podPlan) (revoked, error) {
	e.grants.mu.Lock()
	defer e.grants.mu.Unlock()
	wanted := grantSets(plan)
	took := revoked{}
	for ref, p := range e.grants.pods {
		view := e.snapshot.ViewOf(ref)
		if p.changed {
			p.views = slices.DeleteFunc([]*policy.View{view}, func(v *policy.View) bool { return v == nil })
		}
		for key, s := range p.sets {
			if _, keep := wanted[s.name]; keep && !p.changed {
				continue
			} else if err := e.takeBack(s, view, keep, took); err != nil {
				return took, err
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
	for name := range e.found {
		err := e.k.Sets.Destroy(name)
		switch {
		case err == nil, ipset.IsNotFound(err):
			delete(e.found, name)
		case ipset.IsBusy(err):
			e.log.Warn("a set that no policy needs stays; a rule that is not ours refers to it", "set", name)
		default:
			return took, err
		}
	}
	return took, nil
}

// takeBack removes from a set the reasons that a view does not allow, and the
// addresses that are left without one. Where the last reason to end is gone, the
// kernel's timeout is shortened.
func (e *Enforcer) takeBack(s *grantSet, view *policy.View, keep bool, took revoked) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	allowed := func(r reason) bool { return keep && viewAllows(view, r.name, s.key.ports) }
	var gone, shorter []ipset.Entry
	for a, g := range s.entries {
		kept := filter(g.reasons, allowed)
		switch {
		case len(kept) == 0:
			took.add(s.key, a)
			gone = append(gone, ipset.Entry{Addr: a})
			delete(s.entries, a)
		case len(kept) < len(g.reasons):
			g.reasons = kept
			e.enqueue(s, a, g)
			shorter = append(shorter, e.entry(a, g))
		}
	}
	for _, a := range s.past.prune(allowed) {
		took.add(s.key, a)
	}
	if !keep {
		return nil // the set goes as a whole
	}
	if err := e.k.Sets.Delete(s.name, gone...); err != nil {
		return err
	}
	return e.k.Sets.Add(s.name, shorter...)
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

// remember keeps an ended grant; the one that ended first is forgotten for it
// when there are too many.
func (h *history) remember(a netip.Addr, rs []reason) {
	if _, there := h.reasons[a]; !there {
		h.order = append(h.order, a)
	}
	h.reasons[a] = rs
	for len(h.order) > historyMax {
		delete(h.reasons, h.order[0])
		h.order = h.order[1:]
	}
}

// prune forgets the reasons that are not kept and returns the addresses that are
// left without one.
func (h *history) prune(keep func(reason) bool) []netip.Addr {
	var gone []netip.Addr
	for a, rs := range h.reasons {
		if kept := filter(rs, keep); len(kept) > 0 {
			h.reasons[a] = kept
			continue
		}
		delete(h.reasons, a)
		gone = append(gone, a)
	}
	h.order = slices.DeleteFunc(h.order, func(a netip.Addr) bool { return h.reasons[a] == nil })
	return gone
}
