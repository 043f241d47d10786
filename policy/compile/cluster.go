package compile

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/nnp"
	"github.com/namegate/namegate/policy/api/ordered"
)

// The bounds of what all cluster policies may hold together. Those that select no pod of this
// node count too: so a rule has room on every node or on none.
const (
	// MaxClusterRules bounds the rules.
	MaxClusterRules = 4096
	// MaxClusterMatches bounds the matches.
	MaxClusterMatches = 2 * MaxViewMatches
	// MaxClusterLabels bounds the labels of the patterns with a wildcard.
	MaxClusterLabels = 2 * MaxViewLabels
	// MaxClusterNetworks bounds the different peers: each is two sets in the
	// kernel, and namespaces have the rest of MaxPeerSets.
	MaxClusterNetworks = MaxPeerSets / 2
)

// clusterPolicy is one cluster policy as the compiler keeps it. It is immutable but for from,
// seen and union.
type clusterPolicy struct {
	*ordered.Policy
	from     any            // the object that was last seen
	rules    []*policy.Rule // of the policy; those without room are broken
	outbound int            // how many of rules are for egress: the first
	crowded  []int          // the rules without room
	unknown  []int          // the rules that deny or pass on peers that are not known
	seen     uint64         // the compile that saw it last
	union    uint64         // the last union of which it is one
}

func (p *clusterPolicy) egress() []*policy.Rule  { return p.rules[:p.outbound] }
func (p *clusterPolicy) ingress() []*policy.Rule { return p.rules[p.outbound:] }

// isolates tells whether the policy has rules for ingress of pods.
func (p *clusterPolicy) isolates() bool { return p.Nodes == nil && len(p.ingress()) > 0 }

// clusterPolicies is every cluster policy that the compiler knows.
type clusterPolicies struct {
	room    cost // MaxClusterRules and so on, but for tests; without its entries
	entries int  // MaxClusterEntries, but for tests
	// heavy are the peers that have no room in entries.
	heavy map[policy.Peer]bool
	// peersUnknown: of the last input. A Deny of pods that are not known matched none of them.
	peersUnknown bool
	withNodes    bool // of the last input: policies may select nodes
	known        map[string]*clusterPolicy
	sorted       []*clusterPolicy // those that select and have rules, in order
	clusterSelections
}

func newClusterPolicies() clusterPolicies {
	return clusterPolicies{
		room: cost{rules: MaxClusterRules, matches: MaxClusterMatches, labels: MaxClusterLabels, sets: MaxClusterNetworks}, entries: MaxClusterEntries,
		known: map[string]*clusterPolicy{}, clusterSelections: clusterSelections{spaces: map[string]*clusterSpace{}},
	}
}

// readClusterPolicies reads what is new or changed.
func (c *Compiler) readClusterPolicies(in Input, s *draft) {
	present, changed := 0, in.PeersUnknown != c.cluster.peersUnknown
	c.cluster.peersUnknown = in.PeersUnknown
	if with := in.Node != nil; with != c.cluster.withNodes {
		c.cluster.withNodes, changed = with, true
		clear(c.cluster.known)
	}
	read := func(id string, from any) {
		isNew, isChanged := c.readClusterPolicy(id, from, s)
		if isNew {
			present++
		}
		changed = changed || isChanged
	}
	for _, from := range in.ClusterPolicies {
		read(from.Name, from)
	}
	for _, from := range in.ClusterNetworkPolicies {
		read(cnp.ID(from.GetName()), from)
	}
	for _, from := range in.NodePolicies {
		read(nnp.ID(from.Name), from)
	}
	if present < len(c.cluster.known) {
		maps.DeleteFunc(c.cluster.known, func(_ string, p *clusterPolicy) bool { return p.seen != c.number })
		changed = true
	}
	c.cluster.changed = changes[*clusterGroup]{gone: map[*clusterGroup]bool{}}
	if changed {
		c.sortClusterPolicies()
		c.groupClusterPolicies()
	}
	for _, p := range c.cluster.sorted {
		if len(p.crowded) > 0 {
			s.Problems = append(s.Problems, p.crowdedProblem())
		}
	}
	for _, g := range c.cluster.groups {
		for i := range g.left {
			problem := g.left[i].problem("")
			problem.Object, problem.Reason = c.cluster.known[g.left[i].id].Object, policy.ReasonNoRoom
			s.Problems = append(s.Problems, problem)
		}
	}
}

// readClusterPolicy reads an object. Of two of one name the first counts.
func (c *Compiler) readClusterPolicy(id string, from any, s *draft) (counts, changed bool) {
	p := c.cluster.known[id]
	switch {
	case p != nil && p.seen == c.number:
		s.read("", p.Object, nil, true)
		return false, false
	case p != nil && sameCluster(p.from, from):
		p.from = from
	default:
		p, changed = newClusterPolicy(from, c.cluster.withNodes), true
		c.cluster.known[id] = p
	}
	p.seen = c.number
	s.Problems = append(s.Problems, p.Problems...)
	return true, changed
}

// sameCluster tells whether two objects of one kind and name say the same.
func sameCluster(a, b any) bool {
	if a == b {
		return true
	}
	switch a := a.(type) {
	case *unstructured.Unstructured:
		return cnp.Same(a, b.(*unstructured.Unstructured))
	case *v1alpha1.NodeNetworkPolicy:
		return reflect.DeepEqual(a.Spec, b.(*v1alpha1.NodeNetworkPolicy).Spec)
	}
	return reflect.DeepEqual(a.(*v1alpha1.ClusterFQDNNetworkPolicy).Spec, b.(*v1alpha1.ClusterFQDNNetworkPolicy).Spec)
}

func newClusterPolicy(from any, withNodes bool) *clusterPolicy {
	p := &clusterPolicy{from: from}
	switch from := from.(type) {
	case *unstructured.Unstructured:
		p.Policy = cnp.Read(from)
	case *v1alpha1.ClusterFQDNNetworkPolicy:
		p.Policy = &cfqdnnp.Read(from).Policy
	case *v1alpha1.NodeNetworkPolicy:
		if p.Policy = nnp.Read(from); !withNodes {
			p.Problems, p.Nodes = append(p.Problems, nnp.NotEnabled(from)...), nil
		}
	}
	for _, r := range p.Rules {
		if !r.Broken && r.Peer.Kind == policy.PeerNames {
			r.ID = r.NewID()
		}
		p.rules = append(p.rules, r.Rule)
		if !r.Ingress {
			p.outbound++
		}
	}
	return p
}

// sortClusterPolicies brings the list of the policies up to date.
func (c *Compiler) sortClusterPolicies() {
	c.cluster.sorted = make([]*clusterPolicy, 0, len(c.cluster.known))
	for _, p := range c.cluster.known {
		if (p.Pods != nil || p.Nodes != nil) && len(p.Rules) > 0 {
			c.cluster.sorted = append(c.cluster.sorted, p)
		}
	}
	slices.SortFunc(c.cluster.sorted, func(a, b *clusterPolicy) int { return a.Place().Compare(b.Place()) })
	c.limitClusterPolicies()
}

// limitClusterPolicies breaks the rules whose peers are not known, and those for which there
// is no room, in the order of the policies; those of Audit policies come last, that what is only logged takes no room.
func (c *Compiler) limitClusterPolicies() {
	left, has := c.cluster.room, map[policy.Peer]bool{}
	for _, audit := range []bool{false, true} {
		for i, p := range c.cluster.sorted {
			if p.Audit != audit {
				continue
			}
			crowded, unknown := p.without(&left, has), p.ofUnknown(c.cluster.peersUnknown)
			if !slices.Equal(crowded, p.crowded) || !slices.Equal(unknown, p.unknown) {
				again := newClusterPolicy(p.from, c.cluster.withNodes)
				again.crowded, again.unknown, again.seen = crowded, unknown, p.seen
				for _, j := range slices.Concat(crowded, unknown) {
					again.rules[j] = again.rules[j].Break()
				}
				c.cluster.sorted[i], c.cluster.known[p.ID] = again, again
			}
		}
	}
}

// without returns the rules for which there is no room left, and takes the room of the others.
func (p *clusterPolicy) without(left *cost, has map[policy.Peer]bool) (crowded []int) {
	for j, r := range p.Rules {
		needs := cost{rules: 1, matches: len(r.Matches), labels: wildLabels(r.Matches)}
		if r.Spec != nil && !has[r.Spec.Peer] {
			needs.sets = 1
		}
		if !needs.fits(*left) {
			crowded = append(crowded, j)
			continue
		}
		*left = left.minus(needs)
		if r.Spec != nil {
			has[r.Spec.Peer] = true
		}
	}
	return crowded
}

// ofUnknown returns the rules that deny or pass on pods, if these are not known.
func (p *clusterPolicy) ofUnknown(unknown bool) (rules []int) {
	for j, r := range p.Rules {
		if unknown && r.Action != policy.Accept && r.Spec != nil && r.Spec.OfPods() {
			rules = append(rules, j)
		}
	}
	return rules
}

func (p *clusterPolicy) crowdedProblem() policy.Problem {
	rules := rulesText(len(p.crowded), "policy", "has no room and matches", "have no room and match")
	return policy.Problem{
		Object: p.Object, Reason: policy.ReasonNoRoom, Path: p.Rules[p.crowded[0]].Path,
		Message: fmt.Sprintf("%s nothing as Accept, and as Deny or Pass every connection, which is denied: all cluster policies together have more than "+
			"%d rules, %d matches, %d labels in patterns or %d different lists of networks; write fewer, or a wildcard or a wider network for several",
			rules, MaxClusterRules, MaxClusterMatches, MaxClusterLabels, MaxClusterNetworks),
	}
}
