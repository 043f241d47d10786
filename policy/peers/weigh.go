package peers

import "github.com/namegate/namegate/policy"

// MaxEntries bounds the pods, ports of pods and networks that are to be looked at to fill
// in the sets of a node: no set has more than that. Where selectors have many requirements
// each counts more than once.
const MaxEntries = 1 << 21

// maxSetPorts bounds the ports to look at for one set of named ports: the kernel takes no
// more entries in one set.
const maxSetPorts = 1 << 20

// Weigher counts the pods and ports to look at for filling sets. It is for one state of
// an index.
type Weigher struct {
	index  *Index
	spaces map[string]counts // of the namespaces that a selector selects, by its text
}

// NewWeigher returns a weigher for the pods of an index.
func NewWeigher(x *Index) Weigher { return Weigher{x, map[string]counts{}} }

// Grow makes the set's weight at least what Weigh makes it now: each pod that came may
// be in one list more of each term. To weigh all sets takes longer.
func (l *Set) Grow(w Weigher) {
	switch {
	case l.Weight == 0:
		l.Weigh(w)
	case l.Spec.Kind == policy.PeerPods:
		l.Weight += w.index.joined.pods * l.Spec.cost
	case l.Spec.Kind == policy.PeerPorts:
		if l.Weight += w.index.joined.ports * (1 + l.Spec.cost); l.Weight > maxSetPorts {
			l.Weigh(w)
		}
	}
}

// Weigh makes the set's weight the cost of filling it now.
func (l *Set) Weigh(w Weigher) { l.Weight = w.weigh(l.Spec) }

// weigh returns the cost of filling a set; for a set of ports that the kernel would not
// take, more than any node's quota.
func (w Weigher) weigh(s *Spec) int {
	n := len(s.terms) + len(s.names)
	switch {
	case s.Kind == policy.PeerNetworks:
		return s.count
	case s.Kind == policy.PeerPods:
		return n + w.byTerms(s)
	case s.termsAlone():
		n += min(w.byTerms(s), w.byNames(s))
	default:
		n += w.byNames(s)
	}
	if n > maxSetPorts {
		return MaxEntries + 1
	}
	return n
}

// termsAlone tells whether a set's members are of pods that its terms select.
func (s *Spec) termsAlone() bool { return !s.anywhere && s.count == 0 }

// byTerms returns the cost of looking at the candidates of all terms: at the pods or, for
// a set of ports, at each of their ports.
func (w Weigher) byTerms(s *Spec) (n int) {
	for i := range s.terms {
		t := &s.terms[i]
		shortest, found := t.listed(w.index, s.Kind)
		all := shortest.counts().of(s.Kind)
		if t.spaces != nil {
			if in := w.inSpaces(t).of(s.Kind); !found || in < all {
				all = in
			}
		}
		n += all * t.cost()
	}
	return n
}

// byNames returns the cost of looking at the ports with the names: for each port all
// terms have to be asked.
func (w Weigher) byNames(s *Spec) (n int) {
	s.eachName(func(name string) { n += w.index.byPort.of(name).ports })
	return n * (1 + s.cost/4)
}

// inSpaces returns the cost of looking at the namespaces that a term's selector selects.
// For a selector with many requirements it counts all namespaces, because finding the
// selected ones costs more than it may save.
func (w Weigher) inSpaces(t *term) counts {
	n, known := w.spaces[t.spaces.text]
	if !known {
		for _, sp := range w.index.spaces {
			if len(t.spaces.requirements) >= requirementsPerUnit || t.selectsSpace(sp) {
				in := sp.counts()
				n.pods, n.ports = n.pods+in.pods, n.ports+in.ports
			}
		}
		w.spaces[t.spaces.text] = n
	}
	return n
}
