package suggest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/nnp"
	"github.com/namegate/namegate/policy/api/ordered"
)

// ClusterOptions say which names become a cluster policy, and for whom.
type ClusterOptions struct {
	Tier v1alpha1.Tier
	// Namespaces is how many have to need a name at least.
	Namespaces int
	// Everywhere selects all namespaces, and not those alone that need a name.
	Everywhere bool
}

// SuggestCluster returns one policy that accepts the names which enough namespaces need, on the
// ports that were seen. It does not change l.
func (l *Log) SuggestCluster(o ClusterOptions) Suggestion {
	s := Part{head: fmt.Sprintf("No policy: there is no name to accept that %d namespaces or more need.", o.Namespaces)}
	allowed, needed, portless := map[string]policy.PortSet{}, map[string]bool{}, []string(nil)
	for _, name := range slices.Sorted(maps.Keys(l.common)) {
		n := l.common[name]
		set := policy.NewPortSet(append(n.needs.set().Ranges(), n.opened...)...)
		switch {
		case len(n.namespaces) < o.Namespaces || bare(name):
		case n.denied:
			s.leave("%s: a cluster policy (%s) denies it", name, policy.Admin)
		case set == "":
			portless = append(portless, name)
		default:
			allowed[name] = set
		}
	}
	if len(portless) > 0 {
		s.Notes = append(s.Notes, "asked for, without a port that was seen, so left out: "+console.Listed(portless, maxNames))
	}
	rules := Rules(allowed)
	for _, r := range rules[min(len(rules), ordered.MaxRules):] {
		s.leave("%s: the policy has %d rules, the most that one may have", console.Listed(r.Names, maxNames), ordered.MaxRules)
	}
	rules = rules[:min(len(rules), ordered.MaxRules)]
	if len(rules) == 0 {
		return Suggestion{[]Part{s}}
	}
	names := map[string]bool{}
	for _, r := range rules {
		for _, name := range r.Names {
			names[name] = true
			maps.Copy(needed, l.common[name].namespaces)
		}
	}
	namespaces := slices.Sorted(maps.Keys(needed))
	s.head = fmt.Sprintf("Names that %d namespaces or more need: %d; the namespaces: %s", o.Namespaces, len(names), console.Listed(namespaces, maxNames))
	s.ClusterPolicy = l.clusterPolicy("common-egress", o.Tier, clusterRules(rules, matchNames))
	s.ClusterPolicy.Spec.Subject.Namespaces = &metav1.LabelSelector{}
	if !o.Everywhere {
		s.ClusterPolicy.Spec.Subject.Namespaces.MatchExpressions = []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: namespaces},
		}
	}
	s.Notes = append(s.Notes, l.tierNotes(o.Tier, namespaces)...)
	return Suggestion{[]Part{s}}
}

// bare tells whether a name has one label: pods ask for it with a search suffix.
func bare(name string) bool { return !strings.Contains(name, ".") }

// tierNotes says when the policy has no effect.
func (l *Log) tierNotes(tier v1alpha1.Tier, namespaces []string) []string {
	if tier != v1alpha1.TierBaseline {
		return []string{"it accepts the names before the policies of the namespaces are asked, which cannot deny them any more"}
	}
	notes := []string{"the Baseline tier allows what none of its rules matches: the policy is of use in front of a Baseline policy that denies the rest"}
	selected := slices.DeleteFunc(slices.Clone(namespaces), func(ns string) bool { return !l.selected[ns] })
	if len(selected) > 0 {
		notes = append(notes, fmt.Sprintf("policies of the namespaces replace the Baseline tier for their pods, in %s; --tier Admin is for these too", console.Listed(selected, maxNames)))
	}
	return notes
}

// SuggestNodes returns a policy for all nodes, with Audit, that accepts what was denied, or would have
// been, to nodes themselves, and denies the rest. It does not change l.
func (l *Log) SuggestNodes() Suggestion {
	s := Part{head: "No policy: the lines have no connection of a node that is denied or would be. Apply a policy for nodes with enforcement: Audit that denies everything, and read the log later."}
	n := &l.nodes
	for _, to := range slices.Sorted(maps.Keys(n.portless)) {
		s.leave("%s: rules have ports of TCP, UDP and SCTP; add a rule without ports where the destination is needed", to)
	}
	rules := slices.Concat(clusterRules(Rules(n.names.sets()), matchNames), clusterRules(Rules(n.networks.sets()), func(r *v1alpha1.ClusterEgressRule, network string) {
		r.Networks = append(r.Networks, v1alpha1.Network(network))
	}))
	if len(rules) == 0 {
		return Suggestion{[]Part{s}}
	}
	if most := ordered.MaxRules - 1; len(rules) > most {
		s.leave("%d rules: a policy has at most %d; put them into another policy of a lower priority number", len(rules)-most, ordered.MaxRules)
		rules = rules[:most]
	}
	for _, key := range slices.Sorted(maps.Keys(n.users)) {
		users := strings.Trim(fmt.Sprint(slices.Sorted(maps.Keys(n.users[key]))), "[]")
		s.Notes = append(s.Notes, key+": dialled by the users "+strings.ReplaceAll(users, " ", ", "))
	}
	s.head = "For the connections of the nodes " + console.Listed(slices.Sorted(maps.Keys(n.nodes)), maxNames) + ". It selects every node, and only audits: change nodeSelector, try it, then write enforcement: Enforce."
	priority := int32(ordered.MaxPriority / 2)
	s.NodePolicy = &v1alpha1.NodeNetworkPolicy{TypeMeta: typeMeta(v1alpha1.NodeKind), ObjectMeta: metav1.ObjectMeta{Name: l.unnamed("nodes-egress", nnp.ID)}}
	s.NodePolicy.Spec = v1alpha1.NodeNetworkPolicySpec{NodeSelector: &metav1.LabelSelector{}, Priority: &priority, Enforcement: v1alpha1.EnforcementAudit, Safeguard: &v1alpha1.Safeguard{ConfirmWithin: "5m"}}
	for _, r := range rules {
		s.NodePolicy.Spec.Egress = append(s.NodePolicy.Spec.Egress, v1alpha1.NodeEgressRule{Action: v1alpha1.NodeAccept, Matches: r.Matches, NodePeers: v1alpha1.NodePeers{Networks: r.Networks}, Ports: r.Ports})
	}
	s.NodePolicy.Spec.Egress = append(s.NodePolicy.Spec.Egress, v1alpha1.NodeEgressRule{Name: "everything else", Action: v1alpha1.NodeDeny})
	return Suggestion{[]Part{s}}
}

// clusterPolicy returns a policy without a subject, with a name that no line names, and a priority
// with room before and behind it.
func (l *Log) clusterPolicy(name string, tier v1alpha1.Tier, rules []v1alpha1.ClusterEgressRule) *v1alpha1.ClusterFQDNNetworkPolicy {
	priority := int32(ordered.MaxPriority / 2)
	p := &v1alpha1.ClusterFQDNNetworkPolicy{TypeMeta: typeMeta(v1alpha1.ClusterKind), ObjectMeta: metav1.ObjectMeta{Name: l.unnamed(name, strings.Clone)}}
	p.Spec.Tier, p.Spec.Priority, p.Spec.Egress = tier, &priority, rules
	return p
}

// unnamed returns a name like name for a policy that no line names by its id.
func (l *Log) unnamed(name string, id func(string) string) string {
	number := 1
	for l.existing[id(numbered(name, number))] {
		number++
	}
	return numbered(name, number)
}

// clusterRules returns rules of a cluster policy that accept. fill adds a name, pattern or network.
func clusterRules(rules []Rule, fill func(*v1alpha1.ClusterEgressRule, string)) (out []v1alpha1.ClusterEgressRule) {
	for _, r := range rules {
		rule := v1alpha1.ClusterEgressRule{Action: v1alpha1.ActionAccept, Ports: r.Ports, ServerName: r.ServerName}
		for _, name := range r.Names {
			fill(&rule, name)
		}
		out = append(out, rule)
	}
	return out
}

func matchNames(r *v1alpha1.ClusterEgressRule, name string) {
	r.Matches = append(r.Matches, match(name))
}
