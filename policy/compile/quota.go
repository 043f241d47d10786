package compile

import (
	"cmp"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/policy/peers"
)

// The bounds of all NetworkPolicies of a node's pods together. Without them one namespace
// could take all sets of the kernel, and all memory. If they are exceeded, the least
// demanding namespaces get everything that they request, the others equal parts. A fixed
// quota for each of 110 namespaces would be 37 peers.
const (
	// MaxPeerSets bounds the peers. Each is two sets in the kernel; the policies of 110 pods may take 512 each.
	MaxPeerSets = 4096
	// MaxPeerRules bounds the cost of all different lists of peers and ports.
	MaxPeerRules = 32768
)

// cost is what policies cost, or may cost: the room for them.
type cost struct {
	rules, matches, labels int
	sets                   int // in the kernel
	entries                int // to fill these
}

// nodeQuota is the room of a node.
var nodeQuota = cost{sets: MaxPeerSets, rules: MaxPeerRules, entries: peers.MaxEntries}

func (b cost) fits(in cost) bool {
	return b.rules <= in.rules && b.matches <= in.matches && b.labels <= in.labels && b.sets <= in.sets && b.entries <= in.entries
}

func (b cost) plus(o cost) cost {
	return cost{b.rules + o.rules, b.matches + o.matches, b.labels + o.labels, b.sets + o.sets, b.entries + o.entries}
}

func (b cost) minus(o cost) cost {
	return cost{b.rules - o.rules, b.matches - o.matches, b.labels - o.labels, b.sets - o.sets, b.entries - o.entries}
}

func (b cost) part(of int) cost {
	return cost{rules: b.rules / of, sets: b.sets / of, entries: b.entries / of}
}

// of returns the largest part of any room that b takes.
func (b cost) of(room cost) float64 {
	return max(float64(b.sets)/float64(room.sets), float64(b.rules)/float64(room.rules), float64(b.entries)/float64(room.entries))
}

// applyQuotas lets the rules of NetworkPolicies of each pod be what there is room for on the node.
func (c *Compiler) applyQuotas(s *draft) {
	total := cost{sets: len(c.sets)}
	for r := range c.netRules() {
		r.now = r
		total.rules += r.cost
	}
	w := peers.NewWeigher(c.index)
	for _, l := range c.asked {
		l.Grow(w)
		total.entries += l.Weight
	}
	c.limitClusterEntries(w, total.entries, s)
	if !total.fits(c.room) {
		total.entries = 0
		for _, l := range c.asked {
			l.Weigh(w)
			total.entries += l.Weight
		}
		if !total.fits(c.room) {
			c.divide()
		}
	}
	for r := range c.netRules() {
		for _, l := range r.now.sets {
			l.kept = c.number
		}
	}
	for _, g := range c.cluster.groups {
		for _, l := range g.sets {
			if !c.cluster.heavy[l.Spec.Peer] {
				l.kept = c.number
			}
		}
	}
}

// demand is the rules of NetworkPolicies of one namespace.
type demand struct {
	namespace string
	lists     []*netRules
	cost
}

// divide gives each namespace its part of the room.
func (c *Compiler) divide() {
	left, has := c.room, map[*liveSet]bool{}
	for _, g := range c.cluster.groups { // before the namespaces
		for _, l := range g.sets {
			if !has[l] && !c.cluster.heavy[l.Spec.Peer] {
				has[l] = true
				left = left.minus(cost{sets: 1, entries: l.Weight})
			}
		}
	}
	spaces := map[string]*demand{}
	for r := range c.netRules() {
		name, _, _ := strings.Cut(r.policies[0], "/")
		a := spaces[name]
		if a == nil {
			a = &demand{namespace: name}
			spaces[name] = a
		}
		a.lists = append(a.lists, r)
	}
	var order []*demand
	for _, a := range spaces {
		a.cost = a.beyond(has)
		order = append(order, a)
	}
	slices.SortFunc(order, func(a, b *demand) int {
		return cmp.Or(cmp.Compare(a.of(c.room), b.of(c.room)), strings.Compare(a.namespace, b.namespace))
	})
	for i, a := range order {
		part := left.part(len(order) - i)
		if all := a.beyond(has); all.fits(part) {
			left = left.minus(all)
			for _, r := range a.lists {
				for _, l := range r.sets {
					has[l] = true
				}
			}
			continue
		}
		left = left.minus(part).plus(c.cut(a, part, has))
	}
}

// beyond returns the cost of the rules if some sets are there already.
func (a *demand) beyond(has map[*liveSet]bool) (b cost) {
	seen := map[*liveSet]bool{}
	for _, r := range a.lists {
		b.rules += r.cost
		for _, l := range r.sets {
			if !seen[l] && !has[l] {
				seen[l] = true
				b.sets, b.entries = b.sets+1, b.entries+l.Weight
			}
		}
	}
	return b
}

// cut leaves of the rules of a namespace what there is room for, in the order of the names
// of the NetworkPolicies and of their rules for egress first, and returns the room that is left.
func (c *Compiler) cut(a *demand, room cost, has map[*liveSet]bool) cost {
	slices.SortStableFunc(a.lists, func(a, b *netRules) int { return slices.Compare(a.policies, b.policies) })
	for _, r := range a.lists {
		part := c.newNetRules(r.members, func(rule *ordered.Rule) bool {
			needs := cost{rules: rule.Cost}
			var l *liveSet
			if rule.Peer.Kind != policy.PeerAnywhere {
				if l = c.sets[rule.Peer]; l == nil {
					return false // the view has no room for it anyway
				}
				if !has[l] {
					needs.sets, needs.entries = 1, l.Weight
				}
			}
			if !needs.fits(room) {
				return false
			}
			if room = room.minus(needs); l != nil {
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
