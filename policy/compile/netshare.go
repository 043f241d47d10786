package compile

import (
	"cmp"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
)

// The bounds of what the NetworkPolicies of all pods of a node may allow together. One
// namespace could take all sets of the kernel, and all memory, from the others without
// them. Where they are exceeded the least demanding namespaces get all that they ask
// for, the others equal parts.
const (
	// MaxPeerSets bounds the peers. Each is two sets in the kernel, which has 65,472; the
	// policies of 110 pods may take 512 each.
	MaxPeerSets = 4096
	// MaxPeerRules bounds the rules of the kernel, of each family, of all different lists
	// of peers and ports.
	MaxPeerRules = 32768
	// MaxPeerEntries bounds the pods, ports of pods and networks that are to be looked at
	// to fill in the sets: no set has more than that. Where selectors have many
	// requirements each counts more than once.
	MaxPeerEntries = 1 << 21
)

// maxSetPorts bounds what is to be looked at for one set of named ports: the kernel takes
// no more entries in one set.
const maxSetPorts = 1 << 20

// burden is what NetworkPolicies cost a node.
type burden struct{ sets, rules, entries int }

// nodeRoom is what a node has.
var nodeRoom = burden{MaxPeerSets, MaxPeerRules, MaxPeerEntries}

func (b burden) fits(in burden) bool {
	return b.sets <= in.sets && b.rules <= in.rules && b.entries <= in.entries
}

func (b burden) plus(o burden) burden {
	return burden{b.sets + o.sets, b.rules + o.rules, b.entries + o.entries}
}

func (b burden) minus(o burden) burden {
	return burden{b.sets - o.sets, b.rules - o.rules, b.entries - o.entries}
}

func (b burden) part(of int) burden { return burden{b.sets / of, b.rules / of, b.entries / of} }

// of returns the largest part of any room that b takes.
func (b burden) of(room burden) float64 {
	return max(float64(b.sets)/float64(room.sets), float64(b.rules)/float64(room.rules), float64(b.entries)/float64(room.entries))
}

// share lets each reach be what there is room for on the node.
func (c *Compiler) share() {
	total := burden{sets: len(c.sets)}
	for _, r := range c.reaches {
		r.now = r
		total.rules += r.cost
	}
	w := weigher{c.crowd, map[string]counts{}}
	for _, l := range c.asked {
		l.grow(w)
		total.entries += l.weight
	}
	if !total.fits(c.room) {
		total.entries = 0
		for _, l := range c.asked {
			l.weight = w.weigh(l.spec)
			total.entries += l.weight
		}
		if !total.fits(c.room) {
			c.divide()
		}
	}
	for _, r := range c.reaches {
		for _, l := range r.now.sets {
			l.kept = c.number
		}
	}
}

// asking is the reaches of one namespace.
type asking struct {
	namespace string
	reaches   []*reach
	burden
}

// divide gives each namespace its part of the room.
func (c *Compiler) divide() {
	spaces := map[string]*asking{}
	for _, r := range c.reaches {
		name, _, _ := strings.Cut(r.policies[0], "/")
		a := spaces[name]
		if a == nil {
			a = &asking{namespace: name}
			spaces[name] = a
		}
		a.reaches = append(a.reaches, r)
	}
	var order []*asking
	for _, a := range spaces {
		a.burden = a.beyond(map[*liveSet]bool{})
		order = append(order, a)
	}
	slices.SortFunc(order, func(a, b *asking) int {
		return cmp.Or(cmp.Compare(a.of(c.room), b.of(c.room)), strings.Compare(a.namespace, b.namespace))
	})
	left, has := c.room, map[*liveSet]bool{}
	for i, a := range order {
		part := left.part(len(order) - i)
		if all := a.beyond(has); all.fits(part) {
			left = left.minus(all)
			for _, r := range a.reaches {
				for _, l := range r.sets {
					has[l] = true
				}
			}
			continue
		}
		left = left.minus(part).plus(c.cut(a, part, has))
	}
}

// beyond returns what the reaches cost where some sets are there already.
func (a *asking) beyond(has map[*liveSet]bool) (b burden) {
	seen := map[*liveSet]bool{}
	for _, r := range a.reaches {
		b.rules += r.cost
		for _, l := range r.sets {
			if !seen[l] && !has[l] {
				seen[l] = true
				b.sets, b.entries = b.sets+1, b.entries+l.weight
			}
		}
	}
	return b
}

// cut leaves of a namespace's reaches what there is room for, in the order of the names
// of the NetworkPolicies, and returns the room that is left.
func (c *Compiler) cut(a *asking, room burden, has map[*liveSet]bool) burden {
	slices.SortFunc(a.reaches, func(a, b *reach) int { return slices.Compare(a.policies, b.policies) })
	for _, r := range a.reaches {
		part := c.newReach(r.from, func(rule *netRule) bool {
			cost := burden{rules: rule.cost}
			var l *liveSet
			if rule.Peer.Kind != policy.PeerAnywhere {
				if l = c.sets[rule.Peer]; l == nil {
					return false // the view has no room for it anyway
				}
				if !has[l] {
					cost.sets, cost.entries = 1, l.weight
				}
			}
			if !cost.fits(room) {
				return false
			}
			if room = room.minus(cost); l != nil {
				has[l] = true
			}
			return true
		})
		if last := r.cut; last == nil || !slices.Equal(last.rules, part.rules) || !slices.Equal(last.sets, part.sets) || !slices.Equal(last.left, part.left) {
			r.cut = part
		}
		r.now = r.cut
	}
	return room
}

// weigher counts what is to be looked at to fill in sets.
type weigher struct {
	crowd  *crowd
	spaces map[string]counts // of the namespaces that a selector selects, by its text
}

// grow makes the set's weight at least what weigh returns now: each pod that came may
// be in one list more of each term. To weigh all sets takes longer.
func (l *liveSet) grow(w weigher) {
	switch {
	case l.weight == 0:
		l.weight = w.weigh(l.spec)
	case l.spec.Kind == policy.PeerPods:
		l.weight += w.crowd.joined.pods * l.spec.looks
	case l.spec.Kind == policy.PeerPorts:
		if l.weight += w.crowd.joined.ports * (1 + l.spec.looks); l.weight > maxSetPorts {
			l.weight = w.weigh(l.spec)
		}
	}
}

// weigh returns what it costs to fill a set; of ports, of one that the kernel would not
// take, what no node has room for.
func (w weigher) weigh(s *peerSpec) int {
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
		return MaxPeerEntries + 1
	}
	return n
}

// termsAlone tells whether a set's members are of pods that its terms select.
func (s *peerSpec) termsAlone() bool { return !s.anywhere && len(s.networks) == 0 }

// byTerms returns what it costs to look at the candidates of all terms: at the pods or,
// for a set of ports, at each of their ports.
func (w weigher) byTerms(s *peerSpec) (n int) {
	for i := range s.terms {
		t := &s.terms[i]
		shortest, found := t.listed(w.crowd, s.Kind)
		all := shortest.counts().of(s.Kind)
		if t.spaces != nil {
			if in := w.inSpaces(t).of(s.Kind); !found || in < all {
				all = in
			}
		}
		n += all * t.looks()
	}
	return n
}

// byNames returns what it costs to look at the ports that have the names: whether one
// belongs to the set has to be asked of all terms.
func (w weigher) byNames(s *peerSpec) (n int) {
	s.eachName(func(name string) { n += w.crowd.having(name).ports })
	return n * (1 + s.looks/4)
}

// inSpaces returns what it costs to look at the namespaces that a term's selector
// selects. Where a selector
// has many requirements, to find that out costs more than it may save: it is all of them.
func (w weigher) inSpaces(t *podTerm) counts {
	n, known := w.spaces[t.spaces.text]
	if !known {
		for _, sp := range w.crowd.spaces {
			if len(t.spaces.asks) >= asksPerLook || t.selectsSpace(sp) {
				in := sp.counts()
				n.pods, n.ports = n.pods+in.pods, n.ports+in.ports
			}
		}
		w.spaces[t.spaces.text] = n
	}
	return n
}
