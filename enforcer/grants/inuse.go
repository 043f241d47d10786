package grants

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// At its deadline a name of a grant is judged for use, where a policy of the pod renews what is
// in use. The address is in use if a packet matched the grant since it was last written, or if a
// connection to it was active since. Nothing that is not used costs more than its place in the
// listing, which serves all names that are due: deadlines are multiples of a step.
//
// A name in use is given to the proxy, which queries it. An answer that holds the address extends
// the grant like every answer. Keep is called for the addresses that the answer did not hold.

const (
	// lifeSteps is the least number of steps in the time of a grant whose deadline is rounded up
	// to a multiple of the step, which is a power of two of stepLeast up to stepMost: a listing
	// of 100,000 grants takes a tenth of a second.
	lifeSteps = 4
	stepLeast = time.Second
	stepMost  = 64 * time.Second
	// renewWait is how long a name in use stays after its deadline for the end of its query: for
	// as long as the proxy lets it wait for its turn, and for the longest deadline of a forward.
	// It is renewWaitLeast where the kernel keeps grants for no longer.
	renewWait      = 15 * time.Second
	renewWaitLeast = 5 * time.Second
	// connectionsEvery is how old a listing of connections may be.
	connectionsEvery = 30 * time.Second
	// connectionMargin is the time over connectionsEvery for which a connection keeps an address
	// open, so that a later listing finds it before.
	connectionMargin = 10 * time.Second
	// namesInUseMax bounds how many names of a pod are queried after one listing.
	namesInUseMax = 256
	// ofEarlier is since when the names of another agent count: before every use.
	ofEarlier = monotonic(1)
	// keptMax bounds how many addresses of a name are open by their connections alone.
	keptMax = 64
)

// OnInUse sets a function that receives the names in use whose addresses end in a moment unless
// an answer or Keep extends them. f must not block. It is set before the first change.
func (t *Table) OnInUse(f func([]policy.NameInUse)) { t.inUse = f }

// setViews replaces the views of a pod, and with them the addresses that rules have sets for, but for
// lost ones. Where the views are the first that renew what is in use, the names of open addresses are
// judged too. The caller holds mu.
func (t *Table) setViews(p *podGrants, views []*policy.View, lost func(netip.Addr) bool) {
	var subjects []netip.Addr
	p.views = slices.DeleteFunc(views, func(v *policy.View) bool { return v == nil })
	var latest *policy.View
	for _, v := range p.views {
		if latest = v; !v.Ordered() {
			continue
		}
		for _, a := range v.Pod.IPs {
			if !slices.Contains(subjects, a) && !lost(a) {
				subjects = append(subjects, a)
			}
		}
	}
	p.mu.Lock()
	p.subjects = subjects
	p.mu.Unlock()
	p.latest.Store(latest)
	renewed := p.renews
	p.renews = t.inUse != nil && slices.ContainsFunc(p.views, (*policy.View).Renews)
	if renewed || !p.renews {
		return
	}
	now := t.cfg.Clock.read().now
	for _, s := range p.all() {
		if s.key.Rule.Lasting() {
			continue
		}
		s.mu.Lock()
		for _, g := range s.entries {
			all := g.reasons()
			for i := range all {
				r := &all[i]
				r.renew = r.renew || r.until > now && !r.asked
			}
			t.deadlines.enqueue(g)
		}
		s.mu.Unlock()
	}
}

// roundUp returns the deadline of a name that is judged for use, of one that ends at until.
func roundUp(until, now monotonic) monotonic {
	step := monotonic(stepLeast)
	for step < monotonic(stepMost) && 2*step <= (until-now)/lifeSteps {
		step *= 2
	}
	return (until + step - 1) / step * step
}

// due is when the grant has its place in the queue of deadlines: at the first deadline of a name
// that is to be judged, else at its end.
func (g *grant) due() monotonic {
	all := g.reasons()
	end := all.until()
	for i := range all {
		if r := &all[i]; r.renew {
			end = min(end, r.until)
		}
	}
	return end
}

// toJudge tells whether a name of a grant is to be judged for use now.
func (g *grant) toJudge(now monotonic) bool {
	return slices.ContainsFunc(g.reasons(), func(r reason) bool { return r.renew && r.until <= now })
}

// judge judges grants for use, and gives the names in use to the proxy. Where the kernel does not
// tell, all names are: the answer decides.
func (t *Table) judge(due []*grant) error {
	if len(due) == 0 {
		return nil
	}
	listed, err := t.listUses(due)
	more := false
	for part := range slices.Chunk(due, expiryPart) {
		more = t.noteUses(part, listed) || more
	}
	if more {
		err = errors.Join(err, t.listConnections())
	}
	names := map[policy.PodRef]map[fqdn.Name]*policy.NameInUse{}
	for part := range slices.Chunk(due, expiryPart) {
		t.judgePart(part, err != nil, names)
	}
	var out []policy.NameInUse
	for pod, of := range names {
		t.hold(pod, of)
		for _, in := range of {
			out = append(out, *in)
		}
	}
	if len(out) > 0 {
		t.inUse(out)
	}
	return err
}

// judgePart judges a part of the grants that are due: new grants wait for no more. It adds the
// names in use, which with unknown are all.
func (t *Table) judgePart(due []*grant, unknown bool, names map[policy.PodRef]map[fqdn.Name]*policy.NameInUse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.cfg.Clock.read().now
	for _, g := range due {
		switch {
		case !g.current():
			continue
		case len(g.set.of.views) == 0: // the first snapshot comes
			t.deadlines.enqueueAt(now+monotonic(expiryRetry), g)
			continue
		}
		g.set.mu.Lock()
		all := g.reasons()
		for i := range all {
			r := &all[i]
			if !r.renew || r.until > now {
				continue
			}
			r.renew = false
			inUse := unknown || r.used || t.active(g, r.since)
			if inUse && t.reuse(g.set, r.name) != nil && note(names, g, r.name) {
				r.asked, r.until = true, now+monotonic(min(renewWait, max(t.cfg.Hold, renewWaitLeast)))
			}
		}
		g.set.mu.Unlock()
		t.deadlines.enqueue(g)
	}
}

// noteUses notes the use of grants that were listed, and tells whether one has a name that packets
// do not show to be in use.
func (t *Table) noteUses(due []*grant, listed map[dataplane.GrantSet]map[netip.Addr]uint64) (more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.cfg.Clock.read().now
	for _, g := range due {
		if !g.current() {
			continue
		}
		g.set.mu.Lock()
		g.noteUses(listed[g.set.key][g.address()])
		g.set.mu.Unlock()
		more = more || slices.ContainsFunc(g.reasons(), func(r reason) bool { return r.renew && r.until <= now && !r.used })
	}
	return more
}

// note adds a name in use, unless there are too many of the pod.
func note(names map[policy.PodRef]map[fqdn.Name]*policy.NameInUse, g *grant, name fqdn.Name) bool {
	pod := g.set.key.Pod
	of := names[pod]
	if of == nil {
		of = map[fqdn.Name]*policy.NameInUse{}
		names[pod] = of
	}
	in := of[name]
	if in == nil {
		if len(of) >= namesInUseMax {
			return false
		}
		in = &policy.NameInUse{Pod: pod, Name: name}
		of[name] = in
	}
	if a := g.address(); !slices.Contains(in.Due, a) {
		in.Due = append(in.Due, a)
	}
	return true
}

// hold fills in the addresses that are open for names of a pod, or were up to now.
func (t *Table) hold(pod policy.PodRef, names map[fqdn.Name]*policy.NameInUse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.cfg.Clock.read().now
	seen := map[fqdn.Name]map[netip.Addr]bool{}
	for _, s := range t.pod(pod).all() {
		for _, g := range s.entries {
			a, all := g.address(), g.reasons()
			for i := range all {
				in := names[all[i].name]
				if in == nil || all[i].until < now-monotonic(expiryRetry) || s.key.Rule.Lasting() || seen[in.Name][a] {
					continue
				}
				if seen[in.Name] == nil {
					seen[in.Name] = map[netip.Addr]bool{}
				}
				seen[in.Name][a] = true
				in.Held = append(in.Held, a)
			}
		}
	}
}

// reuse returns the opening of a name of a set by the pod's present view, nil where none of its
// policies renews the name. The caller holds mu.
func (t *Table) reuse(s *set, name fqdn.Name) *policy.Opening {
	v := s.of.latest.Load()
	if v == nil {
		return nil
	}
	for _, o := range v.Decide(name).Openings(0) {
		if o.Rule == s.key.Rule && o.Ports == s.key.Ports && o.Reuse > 0 {
			return &o
		}
	}
	return nil
}

// listUses returns the uses, other than 0, in the sets of the grants that are due.
func (t *Table) listUses(due []*grant) (map[dataplane.GrantSet]map[netip.Addr]uint64, error) {
	listed := map[dataplane.GrantSet]map[netip.Addr]uint64{}
	for i := range due {
		listed[due[i].set.key] = nil
	}
	err := t.cfg.Kernel.ListGrants(slices.Collect(maps.Keys(listed)), func(key dataplane.GrantSet, part []dataplane.Grant) {
		of, due := listed[key]
		for i := range part {
			if !due || part[i].Uses == 0 { // a set that shares its name, or a grant that is idle
				continue
			}
			if of == nil {
				of = map[netip.Addr]uint64{}
				listed[key] = of
			}
			of[part[i].Addr] = part[i].Uses
		}
	})
	return listed, err
}

// Keep tells that the query for a name in use ended without some of its addresses, which the
// guard would let through. They stay open, for as long as an answer with a TTL of 0 opens them
// at least, where a connection to them is active, or where no answer came; up to the policy's
// reuse after the last answer that held them. Others end. It returns what stays.
func (t *Table) Keep(in *policy.NameInUse, left []netip.Addr, answered bool) (kept []policy.GrantInfo) {
	if answered && t.listConnections() != nil {
		answered = false // the connections are not known
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pod(in.Pod)
	if p == nil {
		return nil
	}
	at := t.cfg.Clock.read()
	t.beginBatch()
	alone := t.keptOf(p, in.Name, at.now)
	var staged []int // the place in the batch of each of kept
	for _, s := range p.all() {
		if s.key.Rule.Lasting() {
			continue
		}
		open := t.reuse(s, in.Name)
		for _, a := range left {
			g := s.at(a)
			if g == nil || g.reasons().of(in.Name) == nil {
				continue
			}
			t.endWait(s, g.reasons().of(in.Name), at.now)
			r := *g.reasons().of(in.Name)
			if r.held == 0 {
				last := r.since
				if last == ofEarlier {
					last = r.until
				}
				r.held = uint32(max(last.seconds(), 0))
			}
			if open == nil || at.now >= r.heldAt()+monotonic(open.Reuse) || answered && !t.active(g, r.since) || len(alone) >= keptMax && !alone[a] {
				t.deadlines.enqueue(g)
				continue
			}
			alone[a] = true
			until := at.now + monotonic(max(open.Lifetime, connectionsEvery+connectionMargin))
			r.since, r.until, r.renew, r.used = at.now, roundUp(min(until, r.heldAt()+monotonic(open.Reuse+open.Lifetime)), at.now), true, false
			if i := t.batch.stage(s, a, r); i >= 0 { // else it is open for longer
				kept, staged = append(kept, s.info(a, &r, at)), append(staged, i)
			}
			t.outlast(p, a, nil)
		}
	}
	t.writeBatch()
	done := kept[:0]
	for i := range kept {
		if t.batch.sets[staged[i]].err == nil {
			done = append(done, kept[i])
		}
	}
	return done
}

// endWait ends the wait of a name for its answer. The caller holds mu.
func (t *Table) endWait(s *set, r *reason, now monotonic) {
	if r.asked {
		s.mu.Lock()
		r.asked, r.until = false, now
		s.mu.Unlock()
	}
}

// keptOf returns the addresses that are open for a name by their connections alone. The caller
// holds mu.
func (t *Table) keptOf(p *podGrants, name fqdn.Name, now monotonic) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, s := range p.all() {
		if s.key.Rule.Lasting() {
			continue
		}
		for _, g := range s.entries {
			if r := g.reasons().of(name); r != nil && r.held != 0 && r.until > now {
				out[g.address()] = true
			}
		}
	}
	return out
}
