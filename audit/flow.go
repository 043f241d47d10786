package audit

import (
	"net/netip"
	"time"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// FlowVerdict is what became of connections.
type FlowVerdict uint8

// The verdicts of flows that are logged.
const (
	Denied     FlowVerdict = iota // the enforcing policies deny them
	WouldDeny                     // they passed, and would be denied if the Audit policies were enforced
	WouldAllow                    // they are denied, and would be allowed if the Audit policies were enforced
)

// flowWords are the verdicts as a line has them.
var flowWords = [...]string{"denied", "would-deny", "would-allow"}

// String returns the verdict as a line has it.
func (v FlowVerdict) String() string { return flowWords[v] }

// FlowReason is why connections are denied, as far as the agent can tell.
type FlowReason string

// The reasons, in the order in which the first that holds is given.
const (
	// ReasonRule: a rule of a cluster policy decides.
	ReasonRule FlowReason = "rule"
	// ReasonServerName: a rule requires the TLS server name, and the connection does not begin with a name for which the
	// pod holds a grant of the address by such a rule.
	ReasonServerName FlowReason = "serverName"
	// ReasonLimit: the agent's bounds of connections that it checks leave no room.
	ReasonLimit FlowReason = "limit"
	// ReasonUnchecked: a rule requires the TLS server name, and the connection did not begin through the agent: none was
	// there, the connection is older than the rule, or its address is of the cluster, for which such a rule opens nothing.
	ReasonUnchecked FlowReason = "unchecked"
	// ReasonPorts: a match covers a name of the address, and none this port.
	ReasonPorts FlowReason = "ports"
	// ReasonTranslated: a match covers a name of the address on this port, and a translation
	// leads the connection to where names do not count.
	ReasonTranslated FlowReason = "translated"
	// ReasonExpired: a match covers a name of the address on this port, and the pod
	// did not ask for it again in time.
	ReasonExpired FlowReason = "expired"
	// ReasonBlocked: a match covers a name of the address, and the guard against
	// rebinding took the address out of its answer.
	ReasonBlocked FlowReason = "blocked"
	// ReasonUnmatched: nothing matches any name of the address.
	ReasonUnmatched FlowReason = "unmatched"
	// ReasonAnother: the pod never asked for a name of the address; another pod did.
	ReasonAnother FlowReason = "another"
	// ReasonAddress: no pod of this node resolved the address; it was dialled as an
	// address.
	ReasonAddress FlowReason = "address"
	// ReasonIsolated: NetworkPolicies isolate the pod for ingress, and none allows the connection.
	ReasonIsolated FlowReason = "isolated"
)

// Flow is alike connections of or to one pod, or of the node, that were denied, or would be, or would not.
type Flow struct {
	Time    time.Time     // of the first
	Last    time.Time     // of the last; equal to Time for one
	Pod     policy.PodRef // policy.NodeRef of the node itself
	Address netip.Addr    // the pod's, or the node's
	// Owner is the owner of the node's socket.
	Owner Owner
	// Workload is the pod's, as of policy.View.
	Workload string
	Verdict  FlowVerdict
	// Protocol is the IP protocol's number; 1 and 58 are ICMP's.
	Protocol policy.Protocol
	// Dialled is the destination before any translation. The port is 0 for protocols
	// that have none.
	Dialled netip.AddrPort
	// Source is where connections to the pod come from, as it reaches the pod, and SourcePod the pod
	// there, as far as it is known. Source is not valid of connections that the subject began. Leaves: the node forwards
	// the connection, and the rule is about what leaves.
	Source    netip.Addr
	SourcePod policy.PodRef
	Leaves    bool
	// Names begin with the names that a match covers, then the newest; none if Reason is
	// ReasonAddress.
	Names []FlowName
	// Reason is why the connections are denied. With WouldAllow and another reason than
	// ReasonRule, no rule of a cluster policy would allow them, but the Namespace tier or a
	// default.
	Reason FlowReason
	// ServerName is what the client claimed in the connection, "" for nothing that can be read. It may be any bytes.
	ServerName string
	// Rule is the rule that decides, with ReasonRule, or that requires the server name; nil of a rule for nodes that is
	// gone since.
	Rule *policy.Rule
	// Policies are the FQDNNetworkPolicies that select the pod, "namespace/name"; where none of these is enforced, and of
	// connections to it, the NetworkPolicies that isolate it.
	Policies []string
	// Count is how many there were that the kernel handed over.
	Count uint64
}

// The directions of flows, as a line has them.
const (
	Egress  = "egress"
	Ingress = "ingress"
)

// Direction returns Ingress for connections to the pod.
func (f *Flow) Direction() string {
	if f.Source.IsValid() && !f.Leaves {
		return Ingress
	}
	return Egress
}

// Owner is the user and the group that a socket of the node belongs to. The zero value is unknown.
type Owner struct {
	Known    bool
	UID, GID uint32
}

// FlowName is a name whose answer held the address.
type FlowName struct {
	Name fqdn.Name
	// Asked is zero if it is unknown, as for grants: the kernel has their deadline, not
	// their start.
	Asked time.Time
	// Pod is the pod that asked, if it is another one; else the zero PodRef.
	Pod policy.PodRef
	// Match is the match that covers the name, nil for none.
	Match *policy.Match
}
