package suggest

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
)

// NodeNeeds gathers what nodes themselves need, from their lines of the audit log. It is for one
// goroutine.
type NodeNeeds struct {
	names, networks map[string]needs
	portless        map[string]bool // destinations of protocols without ports
	existing, nodes map[string]bool
	users           map[string]map[uint32]bool // that dialled a name or network
}

// NodeSuggestion is one policy for nodes, to be tried with Audit.
type NodeSuggestion struct {
	Policy *v1alpha1.ClusterFQDNNetworkPolicy // nil where no node was denied a connection
	Nodes  []string                           // that the lines are of, sorted
	Notes  []string                           // the users of destinations
	Left   []string                           // what it does not accept, and why
}

// NewNodeNeeds returns a NodeNeeds without lines.
func NewNodeNeeds() *NodeNeeds {
	return &NodeNeeds{names: map[string]needs{}, networks: map[string]needs{}, portless: map[string]bool{}, existing: map[string]bool{}, nodes: map[string]bool{}, users: map[string]map[uint32]bool{}}
}

// Add adds a line. Lines of pods, of DNS and of connections that would be allowed do not count. The
// error says why no agent can have written it: such a line is left out.
func (n *NodeNeeds) Add(line audit.Line) error {
	if line.Host == nil || line.Kind != audit.KindFlow || line.Verdict == audit.WouldAllow.String() {
		return nil
	}
	if line.Destination == nil {
		return errNoDestination
	}
	a, err := netip.ParseAddr(line.Destination.Address)
	if err != nil {
		return fmt.Errorf("%q is no address", line.Destination.Address)
	}
	n.nodes[line.Node] = true
	if line.Policy != "" {
		n.existing[line.Policy] = true
	}
	to, network := n.names, netip.PrefixFrom(a, a.BitLen()).String()
	key := ""
	for _, seen := range line.Names { // the newest of the node's own
		if name, ok := canonical(seen.Name); ok && seen.Pod == "" && !bare(name) {
			key = name
			break
		}
	}
	if key == "" {
		to, key = n.networks, network
	}
	p, known := protocols[line.Protocol]
	if !known || line.Destination.Port == 0 {
		n.portless[line.Protocol+" to "+key] = true
		return nil
	}
	if to[key] == nil {
		to[key] = needs{}
	}
	to[key][port{p, line.Destination.Port}] = true
	if line.Host.UID != nil {
		if n.users[key] == nil {
			n.users[key] = map[uint32]bool{}
		}
		n.users[key][*line.Host.UID] = true
	}
	return nil
}

// Suggest returns a policy for all nodes, with Audit, that accepts what was denied, or would have been,
// and denies the rest. It does not change n.
func (n *NodeNeeds) Suggest() NodeSuggestion {
	s := NodeSuggestion{Nodes: slices.Sorted(maps.Keys(n.nodes))}
	for _, to := range slices.Sorted(maps.Keys(n.portless)) {
		s.Left = append(s.Left, to+": rules have ports of TCP, UDP and SCTP; add a rule without ports where the destination is needed")
	}
	var rules []v1alpha1.ClusterEgressRule
	add := func(of map[string]needs, fill func(*v1alpha1.ClusterEgressRule, string)) {
		allowed := map[string]policy.PortSet{}
		for key, ports := range of {
			allowed[key] = ports.set()
		}
		for _, r := range Rules(allowed) {
			rule := v1alpha1.ClusterEgressRule{Action: v1alpha1.ActionAccept}
			for _, key := range r.Names {
				fill(&rule, key)
			}
			for _, p := range r.Ports {
				rule.Ports = append(rule.Ports, v1alpha1.ClusterPort(p))
			}
			rules = append(rules, rule)
		}
	}
	add(n.names, func(r *v1alpha1.ClusterEgressRule, name string) { r.Matches = append(r.Matches, match(name)) })
	add(n.networks, func(r *v1alpha1.ClusterEgressRule, network string) {
		r.Networks = append(r.Networks, v1alpha1.Network(network))
	})
	if len(rules) == 0 {
		return s
	}
	if most := cfqdnnp.MaxRules - 1; len(rules) > most {
		s.Left = append(s.Left, fmt.Sprintf("%d rules: a policy has at most %d; put them into another policy of a lower priority number", len(rules)-most, cfqdnnp.MaxRules))
		rules = rules[:most]
	}
	for _, key := range slices.Sorted(maps.Keys(n.users)) {
		var users []string
		for _, uid := range slices.Sorted(maps.Keys(n.users[key])) {
			users = append(users, fmt.Sprint(uid))
		}
		s.Notes = append(s.Notes, key+": dialled by the users "+strings.Join(users, ", "))
	}
	number := 1
	for n.existing[numbered("nodes-egress", number)] {
		number++
	}
	priority := int32(middle)
	p := &v1alpha1.ClusterFQDNNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: numbered("nodes-egress", number)}}
	p.Spec.Tier, p.Spec.Priority, p.Spec.Subject.Nodes = v1alpha1.TierAdmin, &priority, &metav1.LabelSelector{}
	p.Spec.Egress = append(rules, v1alpha1.ClusterEgressRule{Name: "everything else", Action: v1alpha1.ActionDeny})
	p.Spec.Enforcement, p.Spec.Safeguard = v1alpha1.EnforcementAudit, &v1alpha1.Safeguard{ConfirmWithin: "5m"}
	s.Policy = p
	return s
}

// Write writes the policy as a manifest below comments.
func (s NodeSuggestion) Write(out io.Writer) error {
	head := "For the connections of the nodes " + nameList(s.Nodes) + ". It selects every node, and only audits: change subject.nodes, try it, then write enforcement: Enforce."
	if s.Policy == nil {
		head = "No policy: the lines have no connection of a node that is denied or would be. Apply a policy for nodes with enforcement: Audit that denies everything, and read the log later."
	}
	return writeCluster(out, head, s.Notes, s.Left, s.Policy)
}

// List returns the policy as a List in JSON.
func (s NodeSuggestion) List() ([]byte, error) { return ClusterSuggestion{Policy: s.Policy}.List() }
