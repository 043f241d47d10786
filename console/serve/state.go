package serve

import (
	"context"
	"net/netip"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
)

// State is what an agent knows at one moment. Its policies, pods, Services and problems are those that Snapshot
// was compiled from. Nothing of it may be changed, and nothing waits: for the kernel less than a second, for the
// API server not at all.
type State struct {
	// Node is the node's name.
	Node string
	// Snapshot is in force; nil before the first.
	Snapshot *policy.Snapshot
	// Policies and NetworkPolicies are those of all namespaces.
	Policies        []*v1alpha1.FQDNNetworkPolicy
	NetworkPolicies []*networkingv1.NetworkPolicy
	// Remote are the pods of other nodes that Snapshot has only as peers, of RemoteNamespaces, nil for all
	// namespaces. Unread is why they are not known, "" where they are.
	Remote           []*policy.Pod
	RemoteNamespaces []string
	Unread           string
	// Services are the cluster's by each of their addresses.
	Services map[netip.Addr]*policy.Service
	// Problems are those of policies and pods.
	Problems []policy.Problem
	// Failing is why the latest policies are not in force, "" where they are.
	Failing string
	// Domain is the cluster's.
	Domain fqdn.Name

	// Resolvers are whose port 53 the agent answers in place of.
	Resolvers func() []netip.Addr
	// Blocked is the guard against rebinding: why a name must not open an address, "" if it may.
	Blocked func(fqdn.Name, netip.Addr) string
	// Inside describes an address in the cluster other than a pod's: "Service" or "node"; "" for neither.
	Inside func(netip.Addr) string
	// Own tells whether an address is this node's. Nodes are those of the cluster as peers, as far as they are read.
	Own   func(netip.Addr) bool
	Nodes []*policy.Pod
	// Route returns the interface by which the node reaches an address, "" where it is not known; nil: of none.
	Route func(netip.Addr) string
	// CountsByName tells whether names count for what a Service leads on from an address.
	CountsByName func(netip.Addr) bool
	// Status is the answer to console.StatusPath, and Trouble are sentences on what keeps policies from
	// holding for pods.
	Status  func() console.Status
	Trouble func() map[policy.PodRef][]string
	// Engine is set for a pod to which another NetworkPolicy engine may deny what the policies allow.
	Engine func(policy.PodRef) *explain.Engine

	Live Live
	// Log is the audit log, nil where there is none.
	Log Log
}

// Live is what queries and connections change, as it is when it is asked for.
type Live interface {
	// Grants are a pod's. Only pods with a view have any.
	Grants(policy.PodRef) []policy.GrantInfo
	// Ended are grants of a pod for an address that have ended, as far as they are remembered.
	Ended(policy.PodRef, netip.Addr) []policy.GrantInfo
	// Denied are the pod's flows that were denied lately, the newest first.
	Denied(policy.PodRef) []audit.Flow
	// Seen are everybody's answers that held an address.
	Seen(netip.Addr) []recent.Sighting
	// Asked is the result of a pod's last query for a name, if it is known.
	Asked(policy.PodRef, fqdn.Name) (recent.Decision, bool)
	// LedBy are the names whose answers lead a pod to a name now, see policy.Query.
	LedBy(policy.PodRef, fqdn.Name) (via, aliases []fqdn.Name)
	// DeniesResolver tells whether the policies deny a pod the queries to a resolver, and by
	// which rule, nil for a default.
	DeniesResolver(policy.PodRef, netip.Addr) (bool, *policy.Rule)
}

// Log is an audit log.
type Log interface {
	// Follow returns the last lines, and a Follower of those that come after them.
	Follow() (recent []byte, coming Follower)
	// Complete is for how long the lines that Follow returned before have every DNS decision
	// about pods of a namespace, with "" about all pods and the node; false where that is not
	// known, or a filter omits lines.
	Complete(namespace string) (time.Duration, bool)
}

// Follower yields the lines of the audit log as they come.
type Follower interface {
	// Next waits for whole lines, and tells how many were lost behind them. It ends
	// with io.EOF when the log does.
	Next(ctx context.Context) (lines []byte, lost uint64, err error)
	// Close ends the following.
	Close()
}
