package compile

import (
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/netpol"
)

// netPolicy is one NetworkPolicy as the compiler keeps it. It is immutable but for from and seen.
type netPolicy struct {
	*netpol.Policy
	from   *networkingv1.NetworkPolicy // the object that was last seen
	serial uint64                      // of the parse in its compiler
	seen   uint64                      // the compile that saw it last
}

// netPolicies is every NetworkPolicy that the compiler knows.
type netPolicies struct {
	known  map[policyKey]*netPolicy
	spaces map[string]*netSpace
}

// netSpace is the NetworkPolicies for egress of one namespace, sorted by id.
type netSpace struct {
	policies []*netPolicy
	changed  uint64 // the last compile that found a change
}

// readNetworkPolicies reads new and changed objects. Of two of one name the first counts.
func (c *Compiler) readNetworkPolicies(objects []*networkingv1.NetworkPolicy, s *draft) {
	present := 0
	for _, from := range objects {
		if from == nil {
			continue
		}
		key := policyKey{from.Namespace, from.Name}
		n := c.nets.known[key]
		switch {
		case n != nil && n.seen == c.number:
			s.Problems = append(s.Problems, policy.Problem{
				Object: "networkpolicy " + n.ID, Reason: policy.ReasonPartiallyInvalid,
				Message: "the NetworkPolicy is given twice; the first one counts, remove or rename the other",
			})
			continue
		case n != nil && (n.from == from || netpol.Same(n.from, from)):
			n.from = from
		default:
			n = c.replaceNetPolicy(key, n, from)
		}
		n.seen = c.number
		present++
		s.Problems = append(s.Problems, n.Problems...)
	}
	if present < len(c.nets.known) {
		for key, n := range c.nets.known {
			if n.seen != c.number {
				delete(c.nets.known, key)
				c.changeNet(key.namespace, n, nil)
			}
		}
	}
	c.settleNets()
}

func (c *Compiler) replaceNetPolicy(key policyKey, old *netPolicy, from *networkingv1.NetworkPolicy) *netPolicy {
	c.serial++
	n := &netPolicy{Policy: netpol.Read(from), from: from, serial: c.serial}
	c.nets.known[key] = n
	c.changeNet(key.namespace, old, n)
	return n
}

// changeNet notes the added and the removed NetworkPolicy of a namespace, nil for none.
func (c *Compiler) changeNet(namespace string, gone, added *netPolicy) {
	counts := func(n *netPolicy) bool { return n != nil && n.Selector != nil }
	if !counts(gone) && !counts(added) {
		return
	}
	sp := c.nets.spaces[namespace]
	if sp == nil {
		sp = &netSpace{}
		c.nets.spaces[namespace] = sp
	}
	sp.changed = c.number
	if counts(gone) {
		gone.seen = 0
	}
	if counts(added) {
		sp.policies = append(sp.policies, added)
	}
}

// settleNets brings the lists of the namespaces that changed up to date.
func (c *Compiler) settleNets() {
	for name, sp := range c.nets.spaces {
		if sp.changed != c.number {
			continue
		}
		sp.policies = slices.DeleteFunc(sp.policies, func(n *netPolicy) bool { return n.seen != c.number })
		slices.SortFunc(sp.policies, func(a, b *netPolicy) int { return strings.Compare(a.ID, b.ID) })
		if len(sp.policies) == 0 {
			delete(c.nets.spaces, name)
		}
	}
}
