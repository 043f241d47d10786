package peers

import (
	"net/netip"
	"slices"

	"github.com/namegate/namegate/policy"
)

// Set is the members of a Spec, kept up to date while pods change.
type Set struct {
	Spec *Spec
	set  *policy.PeerSet // nil until it is filled
	// Weight is at least the cost of filling the set, 0 before the first time.
	Weight int
}

// NewSet returns the set of a spec, not filled yet.
func NewSet(s *Spec) *Set { return &Set{Spec: s} }

// Members returns the members of the last Update, nil for a set that is not filled.
func (l *Set) Members() *policy.PeerSet { return l.set }

// Forget empties the set and stops its updates.
func (l *Set) Forget() { l.set = nil }

// manyDirty is the number of dirty addresses from which a set is filled anew: looking
// each up in every set costs more than collecting the members of each. manyCost is the
// same for addresses times the cost of the terms.
const (
	manyDirty = 512
	manyCost  = 1 << 16
)

// Update brings the set up to date and returns it: the same one if nothing in it changed.
func (l *Set) Update(x *Index) *policy.PeerSet {
	last := l.set
	switch {
	case l.Spec.Kind == policy.PeerNetworks:
		if last == nil {
			l.set = &policy.PeerSet{Peer: l.Spec.Peer, Networks: l.Spec.networks.Prefixes()}
		}
	case last == nil || len(x.dirty) > manyDirty || len(x.dirty)*l.Spec.cost > manyCost:
		l.set = l.Spec.fill(x)
		if last != nil && slices.Equal(last.Addrs, l.set.Addrs) && slices.Equal(last.Ports, l.set.Ports) {
			l.set = last
		}
	case len(x.dirty) == 0:
	case l.Spec.Kind == policy.PeerPods:
		if addrs, changed := touched(last.Addrs, x.dirty, itself, l.Spec.addrAt); changed {
			l.set = &policy.PeerSet{Peer: l.Spec.Peer, Addrs: addrs}
		}
	default:
		if ports, changed := touched(last.Ports, x.dirty, addrOfPort, l.Spec.portsAt); changed {
			l.set = &policy.PeerSet{Peer: l.Spec.Peer, Ports: ports}
		}
	}
	return l.set
}

func itself(a netip.Addr) netip.Addr          { return a }
func addrOfPort(p policy.PeerPort) netip.Addr { return p.Addr }

// touched returns a set's members after the changes at dirty addresses, and whether the
// list changed. Both are sorted by address.
func touched[M comparable](have []M, dirty []dirtyAddr, addrOf func(M) netip.Addr, at func([]M, dirtyAddr) []M) ([]M, bool) {
	var out, now []M
	changed, from := false, 0
	for _, d := range dirty {
		first, _ := slices.BinarySearchFunc(have[from:], d.Addr, func(m M, a netip.Addr) int { return addrOf(m).Compare(a) })
		first += from
		last := first
		for last < len(have) && addrOf(have[last]) == d.Addr {
			last++
		}
		if now = at(now[:0], d); slices.Equal(have[first:last], now) {
			continue
		}
		out = append(append(out, have[from:first]...), now...)
		changed, from = true, last
	}
	if !changed {
		return have, false
	}
	return append(out, have[from:]...), true
}

// addrAt appends the address if a pod there belongs to the spec's pods.
func (s *Spec) addrAt(out []netip.Addr, d dirtyAddr) []netip.Addr {
	for _, p := range d.pods {
		if s.covers(p, d.Addr) {
			return append(out, d.Addr)
		}
	}
	return out
}

// portsAt appends the ports that the spec's names have at the address, sorted.
func (s *Spec) portsAt(out []policy.PeerPort, d dirtyAddr) []policy.PeerPort {
	for _, p := range d.pods {
		if slices.ContainsFunc(p.ports, s.asksFor) && s.covers(p, d.Addr) {
			out = s.appendPorts(out, p.ports, d.Addr)
		}
	}
	slices.SortFunc(out, policy.PeerPort.Compare)
	return slices.Compact(out)
}

// asksFor tells whether the spec has the port's name and protocol.
func (s *Spec) asksFor(port policy.NamedPort) bool {
	_, found := slices.BinarySearchFunc(s.names, PortName{port.Name, port.Protocol}, PortName.Compare)
	return found
}

// eachName calls do with the spec's names of ports, each once.
func (s *Spec) eachName(do func(string)) {
	for i := range s.names {
		if i == 0 || s.names[i-1].Name != s.names[i].Name {
			do(s.names[i].Name)
		}
	}
}

// fill collects the members of a set.
func (s *Spec) fill(x *Index) *policy.PeerSet {
	set, w := &policy.PeerSet{Peer: s.Peer}, NewWeigher(x)
	switch {
	case s.Kind == policy.PeerPods:
		s.eachSelected(w, func(p *pod) { set.Addrs = append(set.Addrs, p.addrs...) })
		slices.SortFunc(set.Addrs, netip.Addr.Compare)
		set.Addrs = slices.Compact(set.Addrs)
		return set
	case s.termsAlone() && w.byTerms(s) < w.byNames(s):
		s.eachSelected(w, func(p *pod) { set.Ports = s.appendPorts(set.Ports, p.ports, p.addrs...) })
	default:
		s.eachName(func(name string) {
			for _, p := range x.byPort.of(name).pods {
				for _, a := range p.addrs {
					if s.covers(p, a) {
						set.Ports = s.appendPorts(set.Ports, of(p.ports, name), a)
					}
				}
			}
		})
	}
	slices.SortFunc(set.Ports, policy.PeerPort.Compare)
	set.Ports = slices.Compact(set.Ports)
	return set
}

// eachSelected calls do with the pods that the spec's terms select, once for each term.
func (s *Spec) eachSelected(w Weigher, do func(*pod)) {
	for i := range s.terms {
		t := &s.terms[i]
		t.candidates(w, s.Kind, func(list []*pod) {
			for _, p := range list {
				if t.selects(p) {
					do(p)
				}
			}
		})
	}
}

// appendPorts appends the ports that have the spec's names, at each address.
func (s *Spec) appendPorts(out []policy.PeerPort, ports []policy.NamedPort, at ...netip.Addr) []policy.PeerPort {
	for _, port := range ports {
		if s.asksFor(port) {
			for _, a := range at {
				out = append(out, policy.PeerPort{Addr: a, Protocol: port.Protocol, Port: port.Port})
			}
		}
	}
	return out
}

// candidates calls each with lists of the pods that the term may select: of the pods that
// have one of its labels, or of its namespaces, the list of the lowest cost.
func (t *term) candidates(w Weigher, kind policy.PeerKind, each func([]*pod)) {
	if shortest, found := t.listed(w.index, kind); found && (t.spaces == nil || shortest.counts().of(kind) <= w.inSpaces(t).of(kind)) {
		each(shortest.pods)
		return
	}
	for _, sp := range w.index.spaces {
		if t.selectsSpace(sp) {
			each(sp.pods)
		}
	}
}

// listed returns the bucket of the lowest cost that has all pods of the term, if there is
// one.
func (t *term) listed(x *Index, kind policy.PeerKind) (shortest bucket, found bool) {
	take := func(r bucket) {
		if !found || r.counts().of(kind) < shortest.counts().of(kind) {
			shortest, found = r, true
		}
	}
	if t.spaces == nil {
		if sp := x.spaces[t.namespace]; sp != nil {
			take(sp.bucket)
		} else {
			take(bucket{})
		}
	}
	for i := range t.pods.requirements {
		if at, one := t.pods.requirements[i].single(); one {
			if r := x.byLabel[at]; r != nil {
				take(*r)
			}
		}
	}
	return shortest, found
}
