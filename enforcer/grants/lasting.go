package grants

import (
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
)

// Grants of lasting rules, which deny or pass, must not expire into allowed. One ends as a
// whole, whichever name ends last, and never before another grant of its pod and address: a
// grant with a later deadline extends it first. Packets renew it in the kernel, which ends
// it: the agent only looks, at its deadline, for how long the kernel keeps it. It looks also
// within the time that a packet leaves it, as a packet may leave less than it had.

// lookEvery is the step of the times of looks, so that one listing serves many. It is less
// than half of dataplane.LastingMargin.
const lookEvery = monotonic(4 * time.Second)

// nextLook is when a grant of a lasting rule that ends at until is looked at.
func (t *Table) nextLook(s *set, until monotonic) monotonic {
	now := t.cfg.Clock.read().now
	return (max(now, min(until, now+monotonic(s.key.Rule.Reuse())))/lookEvery + 1) * lookEvery
}

// ends is when a grant is over for the grants of lasting rules, which have a margin beyond.
func (t *Table) ends(s *set, g *grant) monotonic {
	if s.key.Rule.Lasting() {
		return g.until()
	}
	return g.until() + monotonic(t.cfg.Hold)
}

// lasting returns the sets of lasting rules of a pod, of one family.
func (p *podSets) lasting(ipv6 bool) (out []*set) {
	for _, s := range p.rules {
		if s.key.IPv6 == ipv6 && s.key.Rule.Lasting() {
			out = append(out, s)
		}
	}
	return out
}

// outlast extends the grants of a pod's lasting rules for an address, in the batch, that
// would end before another grant of it. r waits for them. The caller holds mu.
func (t *Table) outlast(p *podGrants, a netip.Addr, r *request) {
	lasting := p.sets.Load().lasting(a.Is6())
	if len(lasting) == 0 {
		return
	}
	last := never
	for s := range p.all() {
		if g := t.batch.next(s, a); g != nil {
			last = max(last, t.ends(s, g))
		}
	}
	soon := func(s *set) bool {
		g := t.batch.next(s, a)
		return g != nil && (g.until() < last || s.uncertain[a])
	}
	if !slices.ContainsFunc(lasting, soon) {
		return
	}
	// What is written lasts as long as after a packet.
	for _, s := range lasting {
		if t.batch.next(s, a) != nil {
			last = max(last, t.batch.at.now+monotonic(s.key.Rule.Reuse()))
		}
	}
	for _, s := range lasting {
		if soon(s) {
			r.waitFor(t.batch.extend(s, a, last))
		}
	}
}

// extend moves the deadline of an address that has a grant, which is written also where it
// is the same.
func (b *batch) extend(s *set, a netip.Addr, until monotonic) int {
	if s.staged > 0 {
		if c := b.sets[s.staged-1].find(a); c != nil {
			c.grant.extend(max(c.grant.until(), until))
			return s.staged - 1
		}
	}
	g := s.entries[a].clone()
	g.extend(until)
	return b.change(s, a, g)
}

// look is a grant of a lasting rule whose time in the kernel is to be looked at, as it was when
// that became due.
type look struct {
	set   *set
	addr  netip.Addr
	grant *grant
}

// look asks the kernel for how long it keeps grants of lasting rules, and extends those that
// would end before another grant. A grant that the kernel has ended is forgotten. One that
// changed during the listing has a place in the queue again.
func (t *Table) look(due []look) error {
	if len(due) == 0 {
		return nil
	}
	kept, err := t.listLasting(due)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beginBatch()
	now := t.batch.at.now
	for _, d := range due {
		s, g := d.set, d.grant
		if err != nil || s.entries[d.addr] != g {
			continue
		}
		until, there := kept[s.key][d.addr]
		switch last := t.lastOf(d, kept); {
		case !there && g.until()+monotonic(dataplane.LastingMargin) <= now:
			s.mu.Lock()
			s.remove(d.addr)
			s.mu.Unlock()
			t.epoch.Add(1)
		case !there || last > until+monotonic(time.Second):
			t.batch.extend(s, d.addr, last)
		default:
			g = g.clone()
			g.extend(until)
			s.mu.Lock()
			s.put(d.addr, g, !s.uncertain[d.addr])
			s.mu.Unlock()
			t.enqueue(s, d.addr, g)
		}
	}
	t.writeBatch()
	refused := map[*set]bool{}
	for i := range t.batch.sets {
		st := &t.batch.sets[i]
		if st.err == nil {
			continue
		}
		if refused[st.set] = true; err == nil && !dataplane.IsNoSet(st.err) {
			err = st.err
		}
	}
	for _, d := range due {
		if g := d.set.entries[d.addr]; g != nil && (g.queued == 0 || refused[d.set]) {
			g.queued = now + monotonic(expiryRetry)
			t.deadlines.push(deadline{g.queued, d.set, d.addr})
		}
	}
	return err
}

// LongestLeft is how long it is until the last grant of a pod ends that is of no lasting rule, 0
// for none.
func (t *Table) LongestLeft(pod policy.PodRef) time.Duration {
	now := t.cfg.Clock.read().now
	last := now
	t.some(pod, func(s *set) bool {
		if !s.key.Rule.Lasting() {
			for _, g := range s.entries {
				last = max(last, g.until())
			}
		}
		return false
	})
	return time.Duration(last - now)
}

// listLasting returns the deadlines that the kernel has of the lasting rules of the pods
// concerned.
func (t *Table) listLasting(due []look) (map[dataplane.GrantSet]map[netip.Addr]monotonic, error) {
	kept := map[dataplane.GrantSet]map[netip.Addr]monotonic{}
	var keys []dataplane.GrantSet
	for _, d := range due {
		p := t.pod(d.set.key.Pod)
		if p == nil {
			continue
		}
		for _, s := range p.sets.Load().lasting(d.addr.Is6()) {
			if kept[s.key] == nil {
				kept[s.key] = map[netip.Addr]monotonic{}
				keys = append(keys, s.key)
			}
		}
	}
	now := t.cfg.Clock.read().now
	err := t.cfg.Kernel.ListGrants(keys, func(key dataplane.GrantSet, part []dataplane.Grant) {
		for i := range part {
			kept[key][part[i].Addr] = now + monotonic(part[i].Timeout-dataplane.LastingMargin)
		}
	})
	return kept, err
}

// lastOf is when the last grant of a pod and an address is over, by the deadlines that the
// kernel has of lasting rules.
func (t *Table) lastOf(d look, kept map[dataplane.GrantSet]map[netip.Addr]monotonic) monotonic {
	last := never
	p := t.pod(d.set.key.Pod)
	if p == nil {
		return last
	}
	for s := range p.all() {
		g := s.entries[d.addr]
		if g == nil {
			continue
		}
		until, there := kept[s.key][d.addr]
		if !there {
			until = t.ends(s, g)
		}
		last = max(last, until)
	}
	return last
}
