package compile

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/peers"
)

// clusterGroup is the cluster policies of one subject: they select the same pods, or the same
// nodes. It is immutable but for sets and used.
type clusterGroup struct {
	subject          string // of all of them, in a canonical text
	namespaces, pods *peers.Selector
	nodes            *peers.Selector  // nil for policies of pods
	policies         []*clusterPolicy // in order
	index            *policy.Index    // of their rules
	left             []leftOut        // the rules that the index leaves out
	sets             []*liveSet       // of their rules, while a pod of the node is selected
	serial           uint64           // in its compiler
	used             uint64           // the compile in which a pod was selected last
}

// clusterSelections is the cluster policies by their subjects, which subjects select a pod, and
// what the running compile found changed among them.
type clusterSelections struct {
	groups  []*clusterGroup        // sorted by subject
	changed changes[*clusterGroup] // of groups, in the running compile
	spaces  map[string]*clusterSpace
	unions  selections[*clusterGroup, *clusterRules]
	inbound selections[*clusterGroup, *clusterIngress] // of those of the groups with rules for ingress
}

// clusterSpace is the groups that select one namespace of this node's pods.
type clusterSpace struct {
	space[*clusterGroup]
	labels map[string]string
	seen   uint64 // the compile that brought it up to date
}

func (g *clusterGroup) id() string     { return g.subject }
func (g *clusterGroup) number() uint64 { return g.serial }

// groupClusterPolicies brings the groups up to date. One whose policies did not change stays.
func (c *Compiler) groupClusterPolicies() {
	bySubject := map[string][]*clusterPolicy{}
	for _, p := range c.cluster.sorted {
		subject := p.subject()
		bySubject[subject] = append(bySubject[subject], p)
	}
	before := map[string]*clusterGroup{}
	for _, g := range c.cluster.groups {
		before[g.subject] = g
	}
	c.cluster.groups = make([]*clusterGroup, 0, len(bySubject))
	for _, subject := range slices.Sorted(maps.Keys(bySubject)) {
		policies, g := bySubject[subject], before[subject]
		if g == nil || !slices.Equal(g.policies, policies) {
			g = c.newClusterGroup(subject, policies, g)
			c.cluster.changed.added = append(c.cluster.changed.added, g)
		} else {
			delete(before, subject)
		}
		c.cluster.groups = append(c.cluster.groups, g)
	}
	for _, g := range before {
		c.cluster.changed.gone[g] = true
	}
}

// subject is the subject of the policy in a canonical text.
func (p *clusterPolicy) subject() string {
	if p.Nodes != nil {
		return "nodes " + p.Nodes.String()
	}
	return p.Namespaces.String() + " / " + p.Pods.String()
}

// newClusterGroup returns the group that comes after before, nil for none.
func (c *Compiler) newClusterGroup(subject string, policies []*clusterPolicy, before *clusterGroup) *clusterGroup {
	c.serial++
	g := &clusterGroup{subject: subject, namespaces: policies[0].Namespaces, pods: policies[0].Pods, nodes: policies[0].Nodes, policies: policies, serial: c.serial}
	if before != nil && slices.Equal(withMatches(before.policies), withMatches(policies)) {
		g.index, g.left = before.index, before.left
		return g
	}
	var rules []*policy.Rule
	matches := 0
	for _, p := range policies {
		for _, r := range p.rules {
			rules, matches = append(rules, r), matches+len(r.Matches)
		}
	}
	g.index = policy.NewIndex(rules, matches)
	g.left = overOpenings(g.index, tooManyRules)
	return g
}

// withMatches returns the policies that an index is of.
func withMatches(policies []*clusterPolicy) (out []*clusterPolicy) {
	for _, p := range policies {
		if slices.ContainsFunc(p.rules, func(r *policy.Rule) bool { return len(r.Matches) > 0 }) {
			out = append(out, p)
		}
	}
	return out
}

// fillSets fills the sets of a group that selects a pod.
func (c *Compiler) fillSets(g *clusterGroup) {
	if g.sets != nil {
		return
	}
	for _, p := range g.policies {
		for j, rule := range p.rules {
			if spec := p.Rules[j].Spec; spec != nil && !rule.Broken {
				g.sets = append(g.sets, c.liveSet(spec))
			}
		}
	}
}

// clusterSpace returns the groups that select a namespace. One whose labels are not known
// has its name as a label, as every namespace has.
func (c *Compiler) clusterSpace(name string, labels map[string]string) *clusterSpace {
	sp := c.cluster.spaces[name]
	if sp != nil && sp.seen == c.number {
		return sp
	}
	if labels == nil {
		labels = map[string]string{corev1.LabelMetadataName: name}
	}
	selects := func(g *clusterGroup) bool { return g.nodes == nil && g.namespaces.Matches(labels) }
	known := sp != nil && sp.seen == c.number-1 && maps.Equal(sp.labels, labels)
	if sp == nil {
		sp = &clusterSpace{space: space[*clusterGroup]{name: name}}
		c.cluster.spaces[name] = sp
	}
	sp.labels, sp.seen = labels, c.number
	if !known {
		gone := map[*clusterGroup]bool{}
		for _, g := range sp.members {
			gone[g] = true
		}
		sp.apply(c.number, gone, selecting(c.cluster.groups, selects))
	} else if added := selecting(c.cluster.changed.added, selects); len(added) > 0 || slices.ContainsFunc(sp.members, func(g *clusterGroup) bool { return c.cluster.changed.gone[g] }) {
		sp.apply(c.number, c.cluster.changed.gone, added)
	}
	return sp
}

// dropUnusedCluster forgets what no pod of the running compile has.
func (c *Compiler) dropUnusedCluster() {
	maps.DeleteFunc(c.cluster.spaces, func(_ string, sp *clusterSpace) bool { return sp.seen != c.number })
	c.cluster.unions.forget(c.number)
	for _, r := range c.cluster.unions.unions {
		c.cluster.inbound.use(c.number, r.ingress)
		for _, g := range r.members {
			g.used = c.number
		}
	}
	c.cluster.inbound.forget(c.number)
	for _, g := range c.cluster.groups {
		if g.used != c.number {
			g.sets = nil
		}
		for _, l := range g.sets {
			l.used = c.number
		}
	}
}
