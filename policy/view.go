package policy

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/policy/fqdn"
)

// Pod is one pod as a source reports it.
type Pod struct {
	PodRef
	Labels map[string]string
	// IPs are the pod's addresses, unmapped. In a snapshot a finished pod has none.
	IPs []netip.Addr
	// HostNetwork is true for a pod in the node's own network namespace. Such a pod is
	// never selected: its address is the node's.
	HostNetwork bool
	// NodeName is "" for a pod of this node, else the name of its node.
	NodeName string
	// SecondInterfaces is true for a pod with further network interfaces, whose traffic
	// bypasses the node's netfilter.
	SecondInterfaces bool
	// Phase is the pod's phase. A pod that Succeeded or Failed holds no address.
	Phase string
	// Ports are the ports of its containers that have names.
	Ports []NamedPort
}

// NamedPort is a port of a pod's container that has a name.
type NamedPort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// Local tells whether the pod is one of this node.
func (p *Pod) Local() bool { return p.NodeName == "" }

// Same tells whether two reports of a pod say the same.
func (p *Pod) Same(q *Pod) bool {
	return p.PodRef == q.PodRef && p.HostNetwork == q.HostNetwork && p.NodeName == q.NodeName && p.Phase == q.Phase &&
		p.SecondInterfaces == q.SecondInterfaces &&
		slices.Equal(p.IPs, q.IPs) && slices.Equal(p.Ports, q.Ports) && maps.Equal(p.Labels, q.Labels)
}

// Finished tells whether the pod has ended, so that its address may be another pod's.
func (p *Pod) Finished() bool { return p.Phase == "Succeeded" || p.Phase == "Failed" }

// View is the compiled, immutable rules of one selected pod. Views of pods that
// the same policies select share their rules. It is safe for many readers.
type View struct {
	Pod Pod
	// Node is set in the view of the node itself. Then Pod is NodeRef with the addresses
	// NodeSubjects, and there is no Namespace tier.
	Node *Node
	// Traffic are all rules of a view of the node. Those for egress of Local are Rules.Admin too: of them
	// alone names are decided.
	Traffic   *TrafficRules
	Enforced  bool      // at least one enforcing policy selects the pod: it is default-deny
	Denied    Denied    // the strictest of the enforcing policies
	Unmatched Unmatched // the strictest of the enforcing policies
	// AdminUnmatched and BaselineUnmatched are the strictest of the cluster policies.
	AdminUnmatched, BaselineUnmatched Unmatched
	// Limits are the strictest of the enforcing policies, the others those of the cluster policies.
	Limits, AdminLimits, BaselineLimits DNSLimits
	Rules                               Rules
	// Confirmed are the rules of Traffic without those of policies whose safeguard waits for confirmation; nil if none
	// waits.
	Confirmed *TrafficRules
	Index     *Index   // of the rules of the Namespace tier; nil: no name matches
	Cluster   []*Index // of the rules of cluster policies; views with the same of these share it
	Policies  []string // "namespace/name" of every selecting FQDNNetworkPolicy, sorted
	// NetworkPolicies are the "namespace/name" of the NetworkPolicies that select the pod
	// for egress, sorted. Their rules alone allow connections to peers.
	NetworkPolicies []string
	// Standalone: NetworkPolicies isolate the pod without a policy of another kind.
	Standalone bool
	// Ingress are the rules for connections to the pod, nil if no policy judges these. Views with the
	// same ones share them.
	Ingress *Ingress
	closed  map[RuleID]bool // the rules of Cluster that are closed for the pod, nil for none
	// Workload is the selector of all pods like this one, by its labels:
	// "app=cart,tier=front". It is "" if there is none.
	Workload string
}

// Rules are the rules of a view by tier, each tier in order: in the Namespace tier rules with
// names by policy, then rules with peers, of ordinary NetworkPolicies, by peer and ports. Views
// of pods that the same policies select share the lists.
type Rules struct {
	Admin, Namespace, Baseline []*Rule
	// NamespaceDeny are the rules of the Namespace tier that deny, for every destination. They
	// come before its union.
	NamespaceDeny []*Rule
	// NamespaceChecked are the rules of the Namespace tier with ServerName, those of Audit policies last. They are asked
	// behind its union.
	NamespaceChecked []*Rule
}

// Ingress are the rules of a pod for connections to it. FQDNNetworkPolicies and
// ClusterFQDNNetworkPolicies have none.
type Ingress struct {
	// Rules have no NamespaceDeny. The peer of a rule is the source of a connection, and its ports are
	// the pod's.
	Rules
	// NetworkPolicies are the "namespace/name" of those that isolate the pod for ingress, sorted.
	NetworkPolicies []string
}

// InOrder returns the list of each tier, in the order of the tiers, without NamespaceDeny.
func (r *Rules) InOrder() [3][]*Rule { return [3][]*Rule{r.Admin, r.Namespace, r.Baseline} }

// All yields every rule in order.
func (r *Rules) All() iter.Seq[*Rule] {
	return func(yield func(*Rule) bool) {
		for _, rules := range [][]*Rule{r.Admin, r.NamespaceDeny, r.Namespace, r.NamespaceChecked, r.Baseline} {
			for _, rule := range rules {
				if !yield(rule) {
					return
				}
			}
		}
	}
}

// Cluster yields the rules of cluster policies in order.
func (r *Rules) Cluster() iter.Seq[*Rule] {
	return (&Rules{Admin: r.Admin, Baseline: r.Baseline}).All()
}

// Identified yields the rules whose grants may have an ID of their own: those of cluster policies, and of NamespaceChecked.
func (r *Rules) Identified() iter.Seq[*Rule] {
	return (&Rules{Admin: r.Admin, NamespaceChecked: r.NamespaceChecked, Baseline: r.Baseline}).All()
}

// HasRule tells whether a rule makes grants with an ID.
func (v *View) HasRule(id RuleID) bool {
	for r := range v.Rules.Identified() {
		if r.ID == id {
			return true
		}
	}
	return false
}

// PeerRules returns the rules of the Namespace tier with peers. It is shared and must not
// be changed.
func (v *View) PeerRules() []*Rule {
	rules := v.Rules.Namespace
	if i := slices.IndexFunc(rules, func(r *Rule) bool { return r.Peer.Kind != PeerNames }); i >= 0 {
		return rules[i:]
	}
	return nil
}

// ClusterPolicies returns the cluster policies with rules for the pod or the node, in either direction, each once.
func (v *View) ClusterPolicies() (ids []string) {
	for r := range v.Rules.Cluster() {
		if n := len(ids); n == 0 || ids[n-1] != r.Policy {
			ids = append(ids, r.Policy)
		}
	}
	more := func(func(*Rule) bool) {}
	switch {
	case v.Ingress != nil:
		more = v.Ingress.Cluster()
	case v.Traffic != nil:
		more = v.Traffic.All()
	}
	for r := range more {
		if !slices.Contains(ids, r.Policy) {
			ids = append(ids, r.Policy)
		}
	}
	return ids
}

// PortSets returns the distinct port sets of the rules with names that are not Audit's,
// sorted: the sets the kernel needs. It is shared and must not be changed.
func (v *View) PortSets() []PortSet { return v.Index.portSets }

// maxClusterNames bounds the exact names of cluster policies that a view returns: each is two
// questions for each pod, and cluster policies may select every pod.
const maxClusterNames = 1024

// ExactNames returns the exact names of the enforcing policies, sorted by their bytes. opened are
// those of rules that do not only deny: until their addresses are known, what these rules let
// through is denied. denied are the others, without names whose questions are refused: their
// owners would choose the addresses that are denied. Of cluster policies they are the first, opened ones
// before denied ones. Both are shared and must not be changed.
func (v *View) ExactNames() (opened, denied []fqdn.Name) {
	if v.Index != nil {
		opened = v.Index.openedNames
	}
	var cluster []fqdn.Name
	add := func(names []fqdn.Name, left int) { cluster = append(cluster, names[:min(len(names), left)]...) }
	for _, x := range v.Cluster {
		add(x.openedNames, maxClusterNames-len(cluster))
	}
	n := len(cluster)
	if n > 0 {
		opened = sortedNames(opened, cluster)
	}
	if cluster = nil; n == maxClusterNames {
		return opened, nil
	}
	for _, x := range v.Cluster {
		add(x.deniedNames, maxClusterNames-n-len(cluster))
	}
	denied = slices.DeleteFunc(sortedNames(cluster), func(name fqdn.Name) bool {
		_, also := slices.BinarySearch(opened, name)
		return also
	})
	return opened, denied
}

// sortedNames returns the names of lists, each once.
func sortedNames(lists ...[]fqdn.Name) []fqdn.Name {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// Renews tells whether a policy of the view renews addresses in use.
func (v *View) Renews() bool {
	for r := range v.Rules.All() {
		if r.Action == Accept && !r.Audit && len(r.Matches) > 0 && r.TTL.InUse == Renew {
			return true
		}
	}
	return false
}

// StrictestUnmatched returns the strictest of Unmatched, in any tier.
func (v *View) StrictestUnmatched() Unmatched {
	return max(v.Unmatched, v.AdminUnmatched, v.BaselineUnmatched)
}
