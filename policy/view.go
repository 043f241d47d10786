package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy/fqdn"
)

// Pod is one pod as a source reports it.
type Pod struct {
	PodRef
	Labels map[string]string
	// IPs are the pod's addresses, unmapped. In a snapshot a finished pod has none.
	IPs []netip.Addr
	// HostNetwork is true for a pod in the node's own network namespace. Such a
	// pod is never selected: by address nobody can tell it from the node.
	HostNetwork bool
	// NodeName is "" for a pod of this node, else the name of its node.
	NodeName string
	// SecondInterfaces is true for a pod with further network interfaces, whose
	// traffic nobody here sees.
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

// Finished tells whether the pod has ended, so that its address may be another's.
func (p *Pod) Finished() bool { return p.Phase == "Succeeded" || p.Phase == "Failed" }

// Match is one match of one policy as it stands in a view. It is shared and must
// not be changed.
type Match struct {
	Policy  string // "namespace/name"
	Path    string // "spec.egress[0].matches[1]"
	Pattern fqdn.Pattern
	Ports   PortSet
	TTL     TTL
	Audit   bool // from an Audit policy: counts for the log alone
	index   int32
	by      [1]string // By, ready for an Opening of this match alone
}

// NewMatch returns m as the match of that index in its policy.
func NewMatch(m Match, index int) *Match {
	m.index, m.by[0] = int32(index), m.Policy+" "+m.Pattern.String()
	return &m
}

// NewMatcher returns the matcher of matches, which are sorted by policy and index. It
// keeps the slice.
func NewMatcher(matches []*Match) *fqdn.Matcher[*Match] {
	return fqdn.NewMatcher(matches, func(m *Match) *fqdn.Pattern { return &m.Pattern }, (*Match).Compare)
}

// Compare orders by policy, then by index.
func (m *Match) Compare(o *Match) int {
	return cmp.Or(strings.Compare(m.Policy, o.Policy), cmp.Compare(m.index, o.index))
}

// By returns "namespace/name pattern", the words of the log for the match.
func (m *Match) By() string { return m.bys()[0] }

// bys returns By in a slice without room, which may be shared.
func (m *Match) bys() []string {
	if m.by[0] == "" { // not made by NewMatch
		return []string{m.Policy + " " + m.Pattern.String()}
	}
	return m.by[:1:1]
}

// Entry is one rule of one policy as it stands in a view.
type Entry struct {
	Action       Action
	Destinations Destinations
	Ports        PortSet
	TTL          TTL
	Policy       string // "namespace/name"
	Path         string // "spec.egress[0]"
	Audit        bool   // from an Audit policy: counts for the log alone
}

// Destinations says where an entry leads.
type Destinations struct {
	Names []fqdn.Pattern
	// Networks is empty for FQDNNetworkPolicy.
	Networks []netip.Prefix
}

// View is the compiled, immutable rules of one selected pod. Views of pods that
// the same policies select share their rules. It is safe for many readers.
type View struct {
	Pod       Pod
	Enforced  bool      // at least one enforcing policy selects the pod: it is default-deny
	Denied    Denied    // the strictest of the enforcing policies
	Unmatched Unmatched // the strictest of the enforcing policies
	Entries   []Entry   // in the order of policy name, then of the rules
	Policies  []string  // "namespace/name" of every selecting policy, sorted
	// Peers are what ordinary NetworkPolicies allow the pod beside that, sorted by peer
	// and ports. Views of pods that the same ones select share them.
	Peers []PeerRule
	// NetworkPolicies are the "namespace/name" of those that select the pod for egress,
	// sorted. They allow it what Peers says; without any, that is nothing.
	NetworkPolicies []string
	// Workload is what the pod's labels say of all pods like it, as a selector:
	// "app=cart,tier=front". It is "" where they say nothing.
	Workload string
	Rules    *Rules
}

// Rules is what the policies of a view make of their entries. It is immutable.
type Rules struct {
	Matcher    *fqdn.Matcher[*Match] // nil: no name matches
	PortSets   []PortSet
	ExactNames []fqdn.Name
}

// Decide returns the matches of the question name q.
func (v *View) Decide(q fqdn.Name) Decision {
	return Decision{Matches: v.Rules.Matcher.Match(q)}
}

// PortSets returns the distinct port sets of the entries that are not Audit's,
// sorted: the sets the kernel needs. It is shared and must not be changed.
func (v *View) PortSets() []PortSet { return v.Rules.PortSets }

// ExactNames returns the exact names of the enforcing policies, sorted by their
// bytes. It is shared and must not be changed.
func (v *View) ExactNames() []fqdn.Name { return v.Rules.ExactNames }
