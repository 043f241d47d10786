package compile

import (
	"cmp"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/netpol"
	"github.com/namegate/namegate/policy/peers"
)

// The bounds of what the NetworkPolicies of all pods of a node may allow together. One
// namespace could take all sets of the kernel, and all memory, from the others without
// them. Where they are exceeded the least demanding namespaces get all that they ask
// for, the others equal parts.
const (
	// MaxPeerSets bounds the peers. Each is two sets in the kernel, which has 65,472; the
	// policies of 110 pods may take 512 each.
	MaxPeerSets = 4096
	// MaxPeerRules bounds the cost of all different lists of peers and ports.
	MaxPeerRules = 32768
)

// burden is what NetworkPolicies cost a node.
type burden struct{ sets, rules, entries int }

// nodeRoom is what a node has.
var nodeRoom = burden{MaxPeerSets, MaxPeerRules, peers.MaxEntries}

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
	w := peers.NewWeigher(c.index)
	for _, l := range c.asked {
		l.Grow(w)
		total.entries += l.Weight
	}
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
				b.sets, b.entries = b.sets+1, b.entries+l.Weight
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
		part := c.newReach(r.from, func(rule *netpol.Rule) bool {
			cost := burden{rules: rule.Cost}
			var l *liveSet
			if rule.Peer.Kind != policy.PeerAnywhere {
				if l = c.sets[rule.Peer]; l == nil {
					return false // the view has no room for it anyway
				}
				if !has[l] {
					cost.sets, cost.entries = 1, l.Weight
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
