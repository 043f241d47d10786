package suggest

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
)

// ClusterNeeds gathers what the pods of many namespaces need. It is for one goroutine.
type ClusterNeeds struct {
	names map[string]*clusterName
	// existing are the cluster policies that lines name.
	existing map[string]bool
	// selected are the namespaces with pods that a policy of the namespace selects.
	selected map[string]bool
}

// clusterName is what lines say of a name.
type clusterName struct {
	namespaces map[string]bool // whose pods asked for it
	needs      needs           // the ports that were dialled
	opened     []policy.PortRange
	denied     bool // by the Admin tier
}

// ClusterOptions say which names of ClusterNeeds become a policy, and for whom.
type ClusterOptions struct {
	Tier v1alpha1.Tier
	// Namespaces is how many have to need a name at least.
	Namespaces int
	// Everywhere selects all namespaces, and not those alone that need a name.
	Everywhere bool
}

// ClusterSuggestion is one policy for what many namespaces need.
type ClusterSuggestion struct {
	Options ClusterOptions
	// Policy is nil where no name is needed by enough namespaces.
	Policy     *v1alpha1.ClusterFQDNNetworkPolicy
	Names      int      // that it accepts
	Namespaces []string // that need them, sorted
	Left       []string // what it does not accept, and why
	Notes      []string // what to know before it is applied
}

// NewClusterNeeds returns a ClusterNeeds without lines.
func NewClusterNeeds() *ClusterNeeds {
	return &ClusterNeeds{names: map[string]*clusterName{}, existing: map[string]bool{}, selected: map[string]bool{}}
}

// Add adds a line. The error says why no agent can have written it: such a line is left
// out.
func (c *ClusterNeeds) Add(line audit.Line) error {
	if line.Host != nil {
		return nil
	}
	if err := checkPod(line.Pod); err != nil {
		return err
	}
	for _, m := range line.Matches {
		c.sees(line.Pod.Namespace, m.Policy, !m.Audit)
	}
	for _, id := range line.Policies {
		c.sees(line.Pod.Namespace, id, line.Verdict == audit.Denied.String())
	}
	if line.Kind == audit.KindFlow {
		return c.flow(line)
	}
	if line.Question == nil {
		return nil
	}
	switch name, ok := canonical(decidedName(line)); {
	case !ok:
	case line.Verdict == audit.Allowed.String(), line.Verdict == audit.Renewed.String(), line.Verdict == audit.Refused.String() && line.Limit == "", line.Verdict == audit.Unmatched.String() && len(line.Answers) > 0:
		n := c.need(name, line.Pod.Namespace)
		for _, a := range line.Answers {
			for _, g := range a.Grants {
				if set, err := policy.ParsePortSet(g.Ports); err == nil {
					n.opened = policy.NewPortSet(append(n.opened, set.Ranges()...)...).Ranges()
				}
			}
		}
	case deniedByAdmin(line):
		c.need(name, line.Pod.Namespace).denied = true
	}
	return nil
}

// sees notes a policy that a line names.
func (c *ClusterNeeds) sees(namespace, id string, enforces bool) {
	switch {
	case policy.OfCluster(id):
		c.existing[id] = true
	case enforces:
		c.selected[namespace] = true
	}
}

// deniedByAdmin tells whether a rule of the Admin tier denied.
func deniedByAdmin(line audit.Line) bool {
	return line.Tier == policy.Admin.String() && line.Verdict == audit.Denied.String()
}

// flow takes denied connections.
func (c *ClusterNeeds) flow(line audit.Line) error {
	if line.Destination == nil {
		return errNoDestination
	}
	p, known := protocols[line.Protocol]
	for _, n := range line.Names {
		name, ok := canonical(n.Name)
		if !ok || n.Pod != "" || line.Reason == audit.ReasonBlocked || line.Tier == policy.Namespace.String() { // dns.encrypted denies what a namespace decided to deny
			continue
		}
		need := c.need(name, line.Pod.Namespace)
		switch {
		case deniedByAdmin(line):
			need.denied = true
		case known && line.Destination.Port > 0:
			need.needs[port{p, line.Destination.Port}] = true
		}
	}
	return nil
}

func (c *ClusterNeeds) need(name, namespace string) *clusterName {
	n := c.names[name]
	if n == nil {
		n = &clusterName{namespaces: map[string]bool{}, needs: needs{}}
		c.names[name] = n
	}
	n.namespaces[namespace] = true
	return n
}

// ports returns the ports on which the name was dialled, or open.
func (n *clusterName) ports() policy.PortSet {
	return policy.NewPortSet(append(n.needs.set().Ranges(), n.opened...)...)
}

// Suggest returns one policy that accepts the names which enough namespaces need, on the ports
// that were seen. It does not change c.
func (c *ClusterNeeds) Suggest(o ClusterOptions) ClusterSuggestion {
	s := ClusterSuggestion{Options: o}
	allowed, needed, portless := map[string]policy.PortSet{}, map[string]bool{}, []string(nil)
	for _, name := range slices.Sorted(maps.Keys(c.names)) {
		n := c.names[name]
		set := n.ports()
		switch {
		case len(n.namespaces) < o.Namespaces || bare(name):
		case n.denied:
			s.Left = append(s.Left, fmt.Sprintf("%s: a cluster policy (%s) denies it", name, policy.Admin))
		case set == "":
			portless = append(portless, name)
		default:
			allowed[name] = set
		}
	}
	if len(portless) > 0 {
		s.Notes = append(s.Notes, "asked for, without a port that was seen, so left out: "+nameList(portless))
	}
	rules := Rules(allowed)
	for _, r := range rules[min(len(rules), cfqdnnp.MaxRules):] {
		s.Left = append(s.Left, fmt.Sprintf("%s: the policy has %d rules, the most that one may have", nameList(r.Names), cfqdnnp.MaxRules))
	}
	rules = rules[:min(len(rules), cfqdnnp.MaxRules)]
	for _, r := range rules {
		for _, name := range r.Names {
			maps.Copy(needed, c.names[name].namespaces)
		}
	}
	if len(rules) == 0 {
		return s
	}
	s.Namespaces, s.Names = slices.Sorted(maps.Keys(needed)), names(rules)
	s.Policy = c.policy(o, s.Namespaces, rules)
	s.Notes = append(s.Notes, c.notes(o, s.Namespaces)...)
	return s
}

// bare tells whether a name has one label: pods ask for it with a search suffix.
func bare(name string) bool { return !slices.Contains([]byte(name), '.') }

// names counts the names of rules, each once.
func names(rules []Rule) int {
	seen := map[string]bool{}
	for _, r := range rules {
		for _, name := range r.Names {
			seen[name] = true
		}
	}
	return len(seen)
}

// middle is the priority of a suggestion: there is room before and behind it.
const middle = cfqdnnp.MaxPriority / 2

func (c *ClusterNeeds) policy(o ClusterOptions, namespaces []string, rules []Rule) *v1alpha1.ClusterFQDNNetworkPolicy {
	number := 1
	for c.existing[numbered("common-egress", number)] {
		number++
	}
	priority := int32(middle)
	p := &v1alpha1.ClusterFQDNNetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.ClusterKind},
		ObjectMeta: metav1.ObjectMeta{Name: numbered("common-egress", number)},
	}
	p.Spec.Tier, p.Spec.Priority, p.Spec.Subject.Namespaces = o.Tier, &priority, &metav1.LabelSelector{}
	if !o.Everywhere {
		p.Spec.Subject.Namespaces.MatchExpressions = []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: namespaces},
		}
	}
	for _, r := range rules {
		rule := v1alpha1.ClusterEgressRule{Action: v1alpha1.ActionAccept}
		for _, name := range r.Names {
			rule.Matches = append(rule.Matches, match(name))
		}
		for _, port := range r.Ports {
			rule.Ports = append(rule.Ports, v1alpha1.ClusterPort(port))
		}
		p.Spec.Egress = append(p.Spec.Egress, rule)
	}
	return p
}

// notes says when the policy has no effect.
func (c *ClusterNeeds) notes(o ClusterOptions, namespaces []string) []string {
	if o.Tier != v1alpha1.TierBaseline {
		return []string{"it accepts the names before the policies of the namespaces are asked, which cannot deny them any more"}
	}
	notes := []string{"the Baseline tier allows what none of its rules matches: the policy is of use in front of a Baseline policy that denies the rest"}
	var selected []string
	for _, ns := range namespaces {
		if c.selected[ns] {
			selected = append(selected, ns)
		}
	}
	if len(selected) > 0 {
		notes = append(notes, fmt.Sprintf("policies of the namespaces replace the Baseline tier for their pods, in %s; --tier Admin is for these too", nameList(selected)))
	}
	return notes
}
