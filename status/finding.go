package status

import (
	"cmp"
	"slices"

	"github.com/namegate/namegate/policy"
)

// The reasons of findings. All but DNSBlocked, SocketLB, ResolverLoop, SocketBound, Offloaded and NotRelayed are blind spots: the policy does not
// hold for the pod, wholly or in part.
const (
	// DNSBlocked: the pod's queries are dropped on their way to the agent.
	DNSBlocked = "DNSBlocked"
	// NotSeen: netfilter does not see the pod's traffic, so nothing is enforced.
	NotSeen = "NotSeen"
	// IPVS: kube-proxy's IPVS leads connections past the verdict.
	IPVS = "IPVS"
	// BridgeNotFiltered: nothing is denied between the pods of one bridge, or of another switch.
	BridgeNotFiltered = "BridgeNotFiltered"
	// HostNetwork: the pod cannot be told from its node and is not selected; policies for nodes hold
	// for it.
	HostNetwork = "HostNetwork"
	// SecondInterface: the policy holds on the pod's first interface alone.
	SecondInterface = "SecondInterface"
	// SocketLB: a load balancer of eBPF, in the pod's sockets or on its interface, leads
	// its queries past the agent.
	SocketLB = "SocketLB"
	// ResolverLoop: a resolver of the host leads queries back to itself, so that the node's own
	// queries to it are not intercepted.
	ResolverLoop = "ResolverLoop"
	// SocketBound: queries of the node cannot be led to the agent, because their sockets are bound
	// to an interface or belong to a VRF.
	SocketBound = "SocketBound"
	// Offloaded: a flow table of another program may forward packets of the pod's connections past
	// all rules. Connections are judged before, and a cut takes them out again.
	Offloaded = "Offloaded"
	// NotRelayed: the agent cannot accept the connections of rules that require the server name, which are
	// denied.
	NotRelayed = "NotRelayed"
	// Homeless: no interface leads to the pod, so its source is not checked; or no bridge
	// port of its own does, so nothing is accepted from it.
	Homeless = "Homeless"
	// TurnedToAudit: the safeguard of the policy ended its enforcement on the node.
	TurnedToAudit = "TurnedToAudit"
	// FailsafesUnknown: the node does not accept the policy, which could lock it out.
	FailsafesUnknown = "FailsafesUnknown"
	// InterfacesUnknown: the node does not accept the policy, which names no interfaces.
	InterfacesUnknown = "InterfacesUnknown"
)

// blindSpots are the reasons that make a policy's condition Enforced false, the worst
// first. The worst is the condition's reason.
var blindSpots = [...]string{NotSeen, IPVS, BridgeNotFiltered, FailsafesUnknown, InterfacesUnknown, TurnedToAudit, HostNetwork, SecondInterface, Homeless}

// ofNodes tells whether findings of a reason are of nodes, not of pods.
func ofNodes(reason string) bool {
	return reason == TurnedToAudit || reason == FailsafesUnknown || reason == InterfacesUnknown
}

// Finding is a problem of one pod on this node, or of the node, that concerns the owner of a policy.
type Finding struct {
	Policy  string        // "namespace/name"; "" of a pod that only NetworkPolicies select
	Pod     policy.PodRef // policy.NodeRef of the node
	Reason  string        // one of the constants above
	Message string        // the problem and its correction; texts of one reason should differ only in the pod
}

func compareFindings(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Pod.Namespace, b.Pod.Namespace),
		cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Pod.UID, b.Pod.UID), cmp.Compare(a.Message, b.Message),
	)
}

// sortedFindings returns them in order, each once, in a slice of their own.
func sortedFindings(findings []Finding) []Finding {
	sorted := slices.Clone(findings)
	slices.SortFunc(sorted, compareFindings)
	return slices.Compact(sorted)
}
