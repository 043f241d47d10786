package compile

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"

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
	groups      []*clusterGroup // sorted by subject
	gone, added []*clusterGroup // of groups, in the running compile
	spaces      map[string]*clusterSpace
	unions      map[string]*clusterRules // by the serials of their groups
}

// clusterSpace is the groups that select one namespace of this node's pods.
type clusterSpace struct {
	labels      map[string]string
	groups      []*clusterGroup // sorted by subject
	gone, added []*clusterGroup // in the running compile
	seen        uint64          // the compile that brought it up to date
}

func newClusterSelections() clusterSelections {
	return clusterSelections{spaces: map[string]*clusterSpace{}, unions: map[string]*clusterRules{}}
}

// groupClusterPolicies brings the groups up to date. One whose policies did not change stays.
func (c *Compiler) groupClusterPolicies() {
	bySubject := map[string][]*clusterPolicy{}
	for _, p := range c.cluster.sorted {
		subject := p.subject()
		bySubject[subject] = append(bySubject[subject], p)
	}
	before := c.cluster.groups
	groups := make([]*clusterGroup, 0, len(bySubject))
	for _, subject := range slices.Sorted(maps.Keys(bySubject)) {
		policies := bySubject[subject]
		var last *clusterGroup
		if i, found := slices.BinarySearchFunc(before, subject, func(g *clusterGroup, s string) int { return strings.Compare(g.subject, s) }); found {
			last = before[i]
		}
		if last == nil || !slices.Equal(last.policies, policies) {
			last = c.newClusterGroup(subject, policies, last)
		}
		groups = append(groups, last)
	}
	c.cluster.groups = groups
	c.cluster.gone, c.cluster.added = differences(before, groups)
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

func (g *clusterGroup) compare(o *clusterGroup) int { return strings.Compare(g.subject, o.subject) }

// differences returns the groups of before that are not in after, and the other way round.
// Both are sorted.
func differences(before, after []*clusterGroup) (gone, added []*clusterGroup) {
	for len(before) > 0 && len(after) > 0 {
		order := 0
		if before[0] != after[0] {
			if order = before[0].compare(after[0]); order == 0 {
				gone, added = append(gone, before[0]), append(added, after[0])
			}
		}
		switch {
		case order < 0:
			gone, before = append(gone, before[0]), before[1:]
		case order > 0:
			added, after = append(added, after[0]), after[1:]
		default:
			before, after = before[1:], after[1:]
		}
	}
	return append(gone, before...), append(added, after...)
}

// fewChanges is up to how many changes a list is edited: each copies it.
const fewChanges = 16

// selectingGroups returns those of groups that selects says. list is the answer before gone went
// from groups and added came; it is returned where nothing in it changed. Where that is not
// known every group is asked.
func selectingGroups(groups, list, gone, added []*clusterGroup, known bool, selects func(*clusterGroup) bool) []*clusterGroup {
	if !known || len(gone)+len(added) > fewChanges {
		list = nil
		for _, g := range groups {
			if selects(g) {
				list = append(list, g)
			}
		}
		return list
	}
	for _, g := range gone {
		if i, found := slices.BinarySearchFunc(list, g, (*clusterGroup).compare); found {
			list = slices.Concat(list[:i], list[i+1:])
		}
	}
	for _, g := range added {
		if selects(g) {
			i, _ := slices.BinarySearchFunc(list, g, (*clusterGroup).compare)
			list = slices.Concat(list[:i], []*clusterGroup{g}, list[i:])
		}
	}
	return list
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
	known := sp != nil && sp.seen == c.number-1 && maps.Equal(sp.labels, labels)
	if sp == nil {
		sp = &clusterSpace{}
		c.cluster.spaces[name] = sp
	}
	before := sp.groups
	sp.groups = selectingGroups(c.cluster.groups, before, c.cluster.gone, c.cluster.added, known, func(g *clusterGroup) bool { return g.nodes == nil && g.namespaces.Matches(labels) })
	sp.labels, sp.seen, sp.gone, sp.added = labels, c.number, nil, nil
	if !known || len(c.cluster.gone)+len(c.cluster.added) > 0 {
		sp.gone, sp.added = differences(before, sp.groups)
	}
	return sp
}

// clusterOf returns the rules of the cluster policies that select a pod, nil if none does.
// Where the pod's labels are as they were in the last compile, only changes are looked at.
func (c *Compiler) clusterOf(p *policy.Pod, sel *selection, sameLabels bool, namespaces map[string]map[string]string) *clusterRules {
	if p.HostNetwork {
		return nil
	}
	sp := c.clusterSpace(p.Namespace, namespaces[p.Namespace])
	known := sameLabels && sel.clusterAt == c.number-1
	sel.clusterAt = c.number
	var list []*clusterGroup
	if known {
		if len(sp.gone)+len(sp.added) == 0 {
			return sel.cluster.use(c.number)
		}
		if sel.cluster != nil {
			list = sel.cluster.groups
		}
	}
	list = selectingGroups(sp.groups, list, sp.gone, sp.added, known, func(g *clusterGroup) bool { return g.pods.Matches(p.Labels) })
	return c.clusterUnion(list)
}

// clusterUnion returns the rules of groups, nil of none.
func (c *Compiler) clusterUnion(list []*clusterGroup) *clusterRules {
	if len(list) == 0 {
		return nil
	}
	key := make([]byte, 0, 8*len(list))
	for _, g := range list {
		key = binary.LittleEndian.AppendUint64(key, g.serial)
	}
	r := c.cluster.unions[string(key)]
	if r == nil {
		r = c.newClusterRules(list)
		c.cluster.unions[string(key)] = r
	}
	return r.use(c.number)
}

// dropUnusedCluster forgets what no pod of the running compile has.
func (c *Compiler) dropUnusedCluster() {
	maps.DeleteFunc(c.cluster.spaces, func(_ string, sp *clusterSpace) bool { return sp.seen != c.number })
	for key, r := range c.cluster.unions {
		if r.used != c.number {
			delete(c.cluster.unions, key)
			continue
		}
		for _, g := range r.groups {
			g.used = c.number
		}
	}
	for _, g := range c.cluster.groups {
		if g.used != c.number {
			g.sets = nil
		}
		for _, l := range g.sets {
			l.used = c.number
		}
	}
}
