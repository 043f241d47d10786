package compile

import (
	"net/netip"
	"slices"

	"github.com/namegate/namegate/policy"
)

// liveSet is the set of a peer that some view has.
type liveSet struct {
	spec *peerSpec
	set  *policy.PeerSet // nil until it is filled
	used uint64          // the compile in which it was asked for last
	kept uint64          // the last one in which there was room for it
	// weight is at least what it costs to fill it, 0 before the first time.
	weight int
}

// manyDirty is from how many addresses on a set is filled anew: to look each up in
// every set costs more than to collect the members of each. manyLooks is the same of
// addresses and what it costs to ask the terms.
const (
	manyDirty = 512
	manyLooks = 1 << 16
)

// liveSet returns the set of a peer, one for all views.
func (c *Compiler) liveSet(spec *peerSpec) *liveSet {
	l := c.sets[spec.Peer]
	if l == nil {
		l = &liveSet{spec: spec}
		c.sets[spec.Peer] = l
		c.asked, c.sorted, c.came = nil, nil, append(c.came, l)
	}
	return l
}

// meetPeers brings the crowd up to date, if somebody asks for pods.
func (c *Compiler) meetPeers(in Input, s *draft) {
	c.dropUnused()
	came, went := c.came, c.went
	c.came, c.went = nil, nil
	if !slices.ContainsFunc(c.asked, func(l *liveSet) bool { return l.spec.Kind != policy.PeerNetworks }) {
		c.crowd = nil // nobody asks for pods
		return
	}
	if c.crowd == nil {
		c.crowd, came, went = newCrowd(), c.asked, nil
	}
	c.crowd.want(came, went)
	c.crowd.update(c.number, in.Namespaces, s.pods, in.Remote)
}

// settlePeers fills in the peer sets of s, those of the views that it has.
func (c *Compiler) settlePeers(s *draft) {
	kept := 0
	for _, l := range c.asked {
		if l.kept == c.number {
			kept++
		} else {
			l.set = nil // nothing keeps it up to date
		}
	}
	if c.sorted == nil || kept != len(c.sorted) || slices.ContainsFunc(c.sorted, func(l *liveSet) bool { return l.kept != c.number }) {
		c.sorted = make([]*liveSet, 0, kept)
		for _, l := range c.asked {
			if l.kept == c.number {
				c.sorted = append(c.sorted, l)
			}
		}
		slices.SortFunc(c.sorted, func(a, b *liveSet) int { return a.spec.Compare(b.spec.Peer) })
		c.peerSets = nil
	}
	for _, l := range c.sorted {
		if last := l.set; l.settle(c.crowd) != last {
			c.peerSets = nil
		}
	}
	if c.peerSets == nil {
		c.peerSets = make([]*policy.PeerSet, len(c.sorted))
		for i, l := range c.sorted {
			c.peerSets[i] = l.set
		}
	}
	s.PeerSets = c.peerSets
}

// dropUnused forgets what no view of the running compile has.
func (c *Compiler) dropUnused() {
	for key, r := range c.reaches {
		if r.used != c.number {
			delete(c.reaches, key)
			continue
		}
		for _, l := range r.sets {
			l.used = c.number
		}
	}
	if c.asked != nil && !slices.ContainsFunc(c.asked, func(l *liveSet) bool { return l.used != c.number }) {
		return
	}
	c.asked, c.sorted = make([]*liveSet, 0, len(c.sets)), nil
	for peer, l := range c.sets {
		if l.used != c.number {
			delete(c.sets, peer)
			c.went = append(c.went, l)
		} else {
			c.asked = append(c.asked, l)
		}
	}
}

// settle brings the set up to date and returns it: the same one if nothing in it changed.
func (l *liveSet) settle(c *crowd) *policy.PeerSet {
	last := l.set
	switch {
	case l.spec.Kind == policy.PeerNetworks:
		if last == nil {
			l.set = &policy.PeerSet{Peer: l.spec.Peer, Networks: prefixesOf(l.spec.networks)}
		}
	case last == nil || len(c.dirty) > manyDirty || len(c.dirty)*l.spec.looks > manyLooks:
		l.set = l.spec.fill(c)
		if last != nil && slices.Equal(last.Addrs, l.set.Addrs) && slices.Equal(last.Ports, l.set.Ports) {
			l.set = last
		}
	case len(c.dirty) == 0:
	case l.spec.Kind == policy.PeerPods:
		if addrs, changed := touched(last.Addrs, c.dirty, itself, l.spec.addrAt); changed {
			l.set = &policy.PeerSet{Peer: l.spec.Peer, Addrs: addrs}
		}
	default:
		if ports, changed := touched(last.Ports, c.dirty, addrOfPort, l.spec.portsAt); changed {
			l.set = &policy.PeerSet{Peer: l.spec.Peer, Ports: ports}
		}
	}
	return l.set
}

func itself(a netip.Addr) netip.Addr          { return a }
func addrOfPort(p policy.PeerPort) netip.Addr { return p.Addr }

// touched returns a set's members with those at dirty addresses as they are now, and
// whether that is another list. Both are sorted by address.
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
func (s *peerSpec) addrAt(out []netip.Addr, d dirtyAddr) []netip.Addr {
	for _, p := range d.pods {
		if s.covers(p, d.Addr) {
			return append(out, d.Addr)
		}
	}
	return out
}

// portsAt appends the ports that the spec's names have at the address, sorted.
func (s *peerSpec) portsAt(out []policy.PeerPort, d dirtyAddr) []policy.PeerPort {
	for _, p := range d.pods {
		if slices.ContainsFunc(p.ports, s.asksFor) && s.covers(p, d.Addr) {
			out = s.appendPorts(out, p.ports, d.Addr)
		}
	}
	slices.SortFunc(out, policy.PeerPort.Compare)
	return slices.Compact(out)
}

// asksFor tells whether the spec has the port's name and protocol.
func (s *peerSpec) asksFor(port policy.NamedPort) bool {
	_, found := slices.BinarySearchFunc(s.names, portName{port.Name, port.Protocol}, portName.compare)
	return found
}

// eachName calls do with the spec's names of ports, each once.
func (s *peerSpec) eachName(do func(string)) {
	for i := range s.names {
		if i == 0 || s.names[i-1].name != s.names[i].name {
			do(s.names[i].name)
		}
	}
}

// fill collects the members of a set.
func (s *peerSpec) fill(c *crowd) *policy.PeerSet {
	set, w := &policy.PeerSet{Peer: s.Peer}, weigher{c, map[string]counts{}}
	switch {
	case s.Kind == policy.PeerPods:
		s.eachSelected(w, func(p *peerPod) { set.Addrs = append(set.Addrs, p.addrs...) })
		slices.SortFunc(set.Addrs, netip.Addr.Compare)
		set.Addrs = slices.Compact(set.Addrs)
		return set
	case s.termsAlone() && w.byTerms(s) < w.byNames(s):
		s.eachSelected(w, func(p *peerPod) { set.Ports = s.appendPorts(set.Ports, p.ports, p.addrs...) })
	default:
		s.eachName(func(name string) {
			for _, p := range c.having(name).pods {
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
func (s *peerSpec) eachSelected(w weigher, do func(*peerPod)) {
	for i := range s.terms {
		t := &s.terms[i]
		t.candidates(w, s.Kind, func(list []*peerPod) {
			for _, p := range list {
				if t.selects(p) {
					do(p)
				}
			}
		})
	}
}

// appendPorts appends those of ports that have the spec's names, at each address.
func (s *peerSpec) appendPorts(out []policy.PeerPort, ports []policy.NamedPort, at ...netip.Addr) []policy.PeerPort {
	for _, port := range ports {
		if s.asksFor(port) {
			for _, a := range at {
				out = append(out, policy.PeerPort{Addr: a, Protocol: port.Protocol, Port: port.Port})
			}
		}
	}
	return out
}

// candidates calls each with lists of the pods that the term may select: what costs least
// of those that have one of its labels, or those of its namespaces.
func (t *podTerm) candidates(w weigher, kind policy.PeerKind, each func([]*peerPod)) {
	if shortest, found := t.listed(w.crowd, kind); found && (t.spaces == nil || shortest.counts().of(kind) <= w.inSpaces(t).of(kind)) {
		each(shortest.pods)
		return
	}
	for _, sp := range w.crowd.spaces {
		if t.selectsSpace(sp) {
			each(sp.pods)
		}
	}
}

// listed returns the roster that costs least of those that have all pods of the term, if
// there is one.
func (t *podTerm) listed(c *crowd, kind policy.PeerKind) (shortest roster, found bool) {
	take := func(r roster) {
		if !found || r.counts().of(kind) < shortest.counts().of(kind) {
			shortest, found = r, true
		}
	}
	if t.spaces == nil {
		if sp := c.spaces[t.namespace]; sp != nil {
			take(sp.roster)
		} else {
			take(roster{})
		}
	}
	for i := range t.pods.asks {
		if at, one := t.pods.asks[i].single(); one {
			if r := c.byLabel[at]; r != nil {
				take(*r)
			}
		}
	}
	return shortest, found
}
