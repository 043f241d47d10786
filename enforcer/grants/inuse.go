package grants

import (
	"errors"
	"iter"
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
	var subjects, addrs []netip.Addr
	p.views = slices.DeleteFunc(views, func(v *policy.View) bool { return v == nil })
	var latest *policy.View
	for _, v := range p.views {
		latest, addrs = v, append(addrs, v.Pod.IPs...)
		for _, a := range v.Pod.IPs {
			if (v.Ordered() || len(v.Rules.NamespaceChecked) > 0) && !slices.Contains(subjects, a) && !lost(a) {
				subjects = append(subjects, a)
			}
		}
	}
	p.addrs = addrs
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
	for g, r := range p.accepted() {
		g.set.mu.Lock()
		r.renew = r.renew || r.until > now && !r.asked
		g.set.mu.Unlock()
		t.deadlines.enqueue(g)
	}
}

// accepted yields the names of a pod's grants, but for those of lasting rules. The caller holds Table.mu.
func (p *podGrants) accepted() iter.Seq2[*grant, *reason] {
	return func(yield func(*grant, *reason) bool) {
		for _, s := range p.all() {
			if s.key.Rule.Lasting() {
				continue
			}
			for _, g := range s.entries {
				all := g.reasons()
				for i := range all {
					if !yield(g, &all[i]) {
						return
					}
				}
			}
		}
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

// namesInUse are names in use, by their pods.
type namesInUse map[policy.PodRef]map[fqdn.Name]*policy.NameInUse

// judge judges grants for use that were due at a moment, and gives the names in use to the proxy. Where the
// kernel does not tell, all names are: the answer decides.
func (t *Table) judge(due []*grant, now monotonic) error {
	if len(due) == 0 {
		return nil
	}
	idle, err := t.listUses(due, now)
	if idle {
		err = errors.Join(err, t.listConnections())
	}
	names := namesInUse{}
	for part := range slices.Chunk(due, expiryPart) {
		t.judgePart(part, now, err != nil, names)
	}
	var out []policy.NameInUse
	for pod, of := range names {
		t.hold(pod, of, now)
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
func (t *Table) judgePart(due []*grant, now monotonic, unknown bool, names namesInUse) {
	t.mu.Lock()
	defer t.mu.Unlock()
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
			if (unknown || r.used || t.active(g, r.since)) && t.reuse(g.set, r.name) != nil && names.add(g, r.name) {
				r.asked, r.until = true, now+monotonic(min(renewWait, max(t.cfg.Hold, renewWaitLeast)))
			}
		}
		g.set.mu.Unlock()
		t.deadlines.enqueue(g)
	}
}

// add adds a name in use, unless there are too many of the pod.
func (n namesInUse) add(g *grant, name fqdn.Name) bool {
	pod := g.set.key.Pod
	if n[pod] == nil {
		n[pod] = map[fqdn.Name]*policy.NameInUse{}
	}
	in := n[pod][name]
	if in == nil {
		if len(n[pod]) >= namesInUseMax {
			return false
		}
		in = &policy.NameInUse{Pod: pod, Name: name}
		n[pod][name] = in
	}
	if a := g.address(); !slices.Contains(in.Due, a) {
		in.Due = append(in.Due, a)
	}
	return true
}

// hold fills in the addresses that are open for names of a pod, or were up to a moment.
func (t *Table) hold(pod policy.PodRef, names map[fqdn.Name]*policy.NameInUse, now monotonic) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for g, r := range t.pod(pod).accepted() {
		if in := names[r.name]; in != nil && r.until >= now-monotonic(expiryRetry) {
			in.Held = append(in.Held, g.address())
		}
	}
	for _, in := range names {
		slices.SortFunc(in.Held, netip.Addr.Compare)
		in.Held = slices.Compact(in.Held)
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

// listUses notes the uses that the kernel tells of the grants that were due at a moment, and tells whether a name
// of them shows none.
func (t *Table) listUses(due []*grant, now monotonic) (idle bool, err error) {
	uses, sets := map[*set]map[netip.Addr]uint64{}, map[dataplane.GrantSet]*set{}
	for _, g := range due {
		if uses[g.set] == nil {
			uses[g.set], sets[g.set.key] = map[netip.Addr]uint64{}, g.set
		}
	}
	err = t.cfg.Kernel.ListGrants(slices.Collect(maps.Keys(sets)), func(key dataplane.GrantSet, part []dataplane.Grant) {
		of := uses[sets[key]]
		for i := range part {
			if of != nil && part[i].Uses != 0 { // else the set shares its name, or the grant is idle
				of[part[i].Addr] = part[i].Uses
			}
		}
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	for s, of := range uses {
		s.mu.Lock()
		for a, n := range of {
			if g := s.at(a); g != nil && g.toJudge(now) {
				g.noteUses(n)
			}
		}
		s.mu.Unlock()
	}
	return slices.ContainsFunc(due, func(g *grant) bool {
		return g.current() && slices.ContainsFunc(g.reasons(), func(r reason) bool { return r.renew && r.until <= now && !r.used })
	}), err
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
	alone := map[netip.Addr]bool{} // that are open for the name by their connections
	for g, r := range p.accepted() {
		if r.name == in.Name && r.held != 0 && r.until > at.now {
			alone[g.address()] = true
		}
	}
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
			is := g.reasons().of(in.Name)
			if is.asked { // its wait for the answer ends
				s.mu.Lock()
				is.asked, is.until = false, at.now
				s.mu.Unlock()
				t.deadlines.enqueue(g)
			}
			r := *is
			if r.held == 0 {
				last := r.since
				if last == ofEarlier {
					last = r.until
				}
				r.held = uint32(max(last.seconds(), 0))
			}
			if open == nil || at.now >= r.heldAt()+monotonic(open.Reuse) || answered && !t.active(g, r.since) || len(alone) >= keptMax && !alone[a] {
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
