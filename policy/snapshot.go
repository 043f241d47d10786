package policy

import (
	"net/netip"
	"slices"
)

// Problem is something in the input that cannot work as it is written.
type Problem struct {
	Object  string // "policy namespace/name" or "pod namespace/name"
	Reason  string // one of the Reason constants
	Path    string // of the field, "" where the whole object is meant
	Message string // the error, and its correction
	// Pod and Policies are set where policies cannot hold for a pod, or for the node, that they
	// select: "namespace/name" of each.
	Pod      PodRef   `json:"-"`
	Policies []string `json:",omitempty"`
	// Opens: what rules of the policy are to deny is open.
	Opens bool `json:",omitempty"`
}

// The reasons of problems.
const (
	// ReasonInvalid: the policy selects no pod until it is corrected.
	ReasonInvalid = "Invalid"
	// ReasonNotEnabled: the agents do not enforce policies for nodes.
	ReasonNotEnabled = "NotEnabled"
	// ReasonPartiallyInvalid: a part of the policy works not; the rest does.
	ReasonPartiallyInvalid = "PartiallyInvalid"
	// ReasonNoRoom: a rule is beyond a limit of all policies together.
	ReasonNoRoom = "NoRoom"
	// ReasonHostNetwork: a policy selects a pod that cannot be told from its node.
	ReasonHostNetwork = "HostNetwork"
	// ReasonSecondInterface: a policy selects a pod with further network
	// interfaces, and holds on the first alone.
	ReasonSecondInterface = "SecondInterface"
	// ReasonAddressConflict: several pods claim one address, and none may use it.
	ReasonAddressConflict = "AddressConflict"
	// ReasonFailsafesUnknown: a policy selects a node whose failsafes are not all known, and is not
	// accepted there.
	ReasonFailsafesUnknown = "FailsafesUnknown"
	// ReasonInterfacesUnknown: a policy without interfaces selects a node whose own are not known, and is
	// not accepted there.
	ReasonInterfacesUnknown = "InterfacesUnknown"
	// ReasonTurnedToAudit: the safeguard of a policy ended its enforcement on the node.
	ReasonTurnedToAudit = "TurnedToAudit"
	// ReasonAddressInvalid: the pod claims an address that no pod can have.
	ReasonAddressInvalid = "AddressInvalid"
	// ReasonExternalIPs: Services have external IPs that nothing else makes the cluster's.
	ReasonExternalIPs = "ExternalIPs"
)

// Snapshot is all views of the node at one moment. It is immutable and safe for
// many readers. A nil Snapshot knows no pod.
type Snapshot struct {
	// Number counts the compiles of one Compiler, from 1.
	Number uint64
	// Views are the views of local pods that a policy selects, sorted by pod. The first may be that
	// of the node.
	Views []*View
	// Problems are sorted by object.
	Problems []Problem
	// PeerSets are the peer sets of the views' rules, sorted by peer. A set that is
	// unchanged since the compiler's last snapshot is the same pointer.
	PeerSets []*PeerSet
	// Remote are the pods of other nodes that are known as peers alone. Those of RemoteNamespaces, nil for every
	// namespace, are all known.
	Remote           []*Pod
	RemoteNamespaces []string

	pods      []Pod
	byAddr    map[netip.Addr]*View
	byRef     map[PodRef]*View
	podByAddr map[netip.Addr]PodRef
}

// NewSnapshot returns a snapshot with the exported fields of s, of which it sorts the
// views, and with pods, sorted, and whose each address is.
func NewSnapshot(s Snapshot, pods []Pod, owners map[netip.Addr]PodRef) *Snapshot {
	s.pods, s.podByAddr = pods, owners
	views := s.Views
	addrs := 0
	for _, v := range views {
		addrs += len(v.Pod.IPs)
	}
	s.byAddr, s.byRef = make(map[netip.Addr]*View, addrs), make(map[PodRef]*View, len(views))
	for _, v := range views {
		s.byRef[v.Pod.PodRef] = v
		for _, a := range v.Pod.IPs {
			s.byAddr[a] = v
		}
	}
	s.Views = slices.SortedFunc(slices.Values(views), func(a, b *View) int { return a.Pod.Compare(b.Pod.PodRef) })
	return &s
}

// View returns the view of the pod at a, nil if no policy selects that pod or no pod is there.
func (s *Snapshot) View(a netip.Addr) *View {
	if s == nil {
		return nil
	}
	return s.byAddr[CleanAddr(a)]
}

// ViewOf returns the view of a pod, nil if no policy selects it.
func (s *Snapshot) ViewOf(p PodRef) *View {
	if s == nil {
		return nil
	}
	return s.byRef[p]
}

// Node returns the view of the node, nil if no policy selects it.
func (s *Snapshot) Node() *View {
	if s == nil || len(s.Views) == 0 || s.Views[0].Node == nil {
		return nil
	}
	return s.Views[0]
}

// Pod returns the pod at a, also one of another node, and whether there is one.
func (s *Snapshot) Pod(a netip.Addr) (PodRef, bool) {
	if s == nil {
		return PodRef{}, false
	}
	ref, ok := s.podByAddr[CleanAddr(a)]
	return ref, ok
}

// Pods returns every known pod, including those of other nodes, sorted. It is shared and
// must not be changed.
func (s *Snapshot) Pods() []Pod {
	if s == nil {
		return nil
	}
	return s.pods
}

// PeerSet returns the peer set of a peer; nil for PeerAnywhere and for a peer that no
// view has.
func (s *Snapshot) PeerSet(p Peer) *PeerSet {
	if s == nil {
		return nil
	}
	i, there := slices.BinarySearchFunc(s.PeerSets, p, func(set *PeerSet, p Peer) int { return set.Peer.Compare(p) })
	if !there {
		return nil
	}
	return s.PeerSets[i]
}

// SameButPeers tells whether two snapshots differ only in their PeerSets, Remote, Number and
// Problems.
func (s *Snapshot) SameButPeers(o *Snapshot) bool {
	return s != nil && o != nil && slices.Equal(s.Views, o.Views) &&
		slices.EqualFunc(s.pods, o.pods, func(a, b Pod) bool { return a.Same(&b) })
}
