package peers

import (
	"cmp"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/namegate/namegate/policy"
)

// Spec is the selection of a Peer, as the compiler evaluates it. Equal peers have equal
// specs. It is immutable.
type Spec struct {
	policy.Peer
	terms    []term        // PeerPods, PeerPorts
	networks *netipx.IPSet // PeerNetworks, PeerPorts; not nil where there are some
	count    int           // how many networks that makes
	cost     int           // the cost of asking all terms
	anywhere bool          // PeerPorts of a rule for every destination
	names    []PortName    // PeerPorts: sorted, each once
}

// term is the pods of some namespaces that a selector selects.
type term struct {
	text      string
	namespace string    // of all its pods, "" where spaces tells them
	spaces    *Selector // of the namespaces' labels
	pods      *Selector
}

// PortName is a port's name with the protocol that it has to have.
type PortName struct {
	Name     string
	Protocol policy.Protocol
}

// NamedPorts returns names for the pod that a connection reaches, whose ports they are.
func NamedPorts(names []PortName) (of []policy.NamedPort) {
	for _, n := range names {
		of = append(of, policy.NamedPort{Name: n.Name, Protocol: n.Protocol})
	}
	return of
}

// Compare orders by name and protocol.
func (n PortName) Compare(o PortName) int {
	return cmp.Or(strings.Compare(n.Name, o.Name), cmp.Compare(n.Protocol, o.Protocol))
}

// newTerm returns the term for the pods that pods selects, of a namespace or of those
// that spaces selects.
func newTerm(namespace string, spaces, pods *Selector) term {
	t := term{namespace: namespace, spaces: spaces, pods: pods}
	switch {
	case spaces == nil:
		t.text = plain(namespace)
	case spaces.Everything():
		t.text = "*"
	default:
		t.text = "ns " + spaces.text
	}
	t.text += ": " + pods.text
	return t
}

// nodesNamespace is where an Index has the nodes: a name that no namespace has.
const nodesNamespace = "nodes/"

// Node returns a node as an Index takes it, among the pods of other nodes.
func Node(name string, labels map[string]string, ips []netip.Addr) *policy.Pod {
	return &policy.Pod{PodRef: policy.PodRef{Namespace: nodesNamespace, Name: name}, Labels: labels, IPs: ips}
}

// plain returns the name of an object, in hexadecimal where it has characters that
// separate parts of a key: no API server lets such a name in.
func plain(name string) string {
	if name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") == "" {
		return name
	}
	return "x'" + hex.EncodeToString([]byte(name)) + "'"
}

// selects tells whether the term holds a pod. A namespace whose labels are not known
// is selected by no question about them.
func (t *term) selects(p *pod) bool {
	return t.selectsSpace(p.space) && t.pods.Matches(p.labels)
}

func (t *term) selectsSpace(sp *namespace) bool {
	if t.spaces == nil {
		return t.namespace == sp.name
	}
	return t.spaces.Everything() && sp.name != nodesNamespace || sp.known && t.spaces.Matches(sp.labels)
}

// OfPods tells whether the members depend on pods.
func (s *Spec) OfPods() bool {
	return s.Kind == policy.PeerPorts || slices.ContainsFunc(s.terms, func(t term) bool { return t.namespace != nodesNamespace })
}

// SelectsPod tells whether a selector of the spec holds a pod with labels, in a namespace with
// labels. Networks, and a rule for every destination, hold no pod.
func (s *Spec) SelectsPod(space string, spaceLabels, labels map[string]string) bool {
	p := &pod{space: &namespace{name: space, labels: spaceLabels, known: true}, labels: labels}
	return slices.ContainsFunc(s.terms, func(t term) bool { return t.selects(p) })
}

// Within tells whether all pods that a selector of the spec may hold are in some namespaces.
func (s *Spec) Within(namespaces []string) bool {
	return !slices.ContainsFunc(s.terms, func(t term) bool {
		return t.spaces != nil || t.namespace != nodesNamespace && !slices.Contains(namespaces, t.namespace)
	})
}

// PortNames returns the names of ports of a spec of PeerPorts, sorted, each once. The caller
// must not change them.
func (s *Spec) PortNames() []PortName { return s.names }

// cost is the cost of asking the term for one pod, in units of an ordinary one: selectors
// may have tens of thousands of requirements. Selectors of namespaces are asked a second
// time, for each namespace.
func (t *term) cost() int {
	requirements := len(t.pods.requirements)
	if t.spaces != nil {
		requirements += 2 * len(t.spaces.requirements)
	}
	return 1 + requirements/requirementsPerUnit
}

// requirementsPerUnit is how many requirements cost as much as the rest of looking at a pod.
const requirementsPerUnit = 8

// covers tells whether the spec's destinations have the pod's address a.
func (s *Spec) covers(p *pod, a netip.Addr) bool {
	if s.anywhere {
		return true
	}
	for i := range s.terms {
		if s.terms[i].selects(p) {
			return true
		}
	}
	return s.count > 0 && s.networks.Contains(a)
}
