package agent

import (
	"log/slog"
	"net/netip"

	"github.com/namegate/namegate/console"
)

// Options are the parameters of a node's agent.
type Options struct {
	// Version is the program's.
	Version string
	// Node is the node's name. Of a folder it is needed where pods of other nodes are in it.
	Node string
	// Corefile is the path of the configuration.
	Corefile string
	// Socket is where the node's commands are answered, HealthSocket where the kubelet's
	// probes are, "" for none. MetricsAddr is the same for Prometheus.
	Socket, HealthSocket, MetricsAddr string
	// Profiles serves Go profiles at MetricsAddr.
	Profiles bool
	// Manifests is the folder that policies and pods come from, without Cluster.
	Manifests string
	Cluster   *Cluster // nil with Manifests
	// IPTables is "legacy", "nft", or "" for the variant that the host uses.
	IPTables string
	// Standby has the agent wait while another agent has the node.
	Standby bool
	// Park makes queries of unknown addresses in PodRanges wait until their pod is known.
	// Without PodRanges the ranges of the Node object count.
	Park      bool
	PodRanges []netip.Prefix
	// Nodes enforces policies for nodes. ResolvConf is the file with the resolvers of the host.
	Nodes      bool
	ResolvConf string
	// EnforceNetworkPolicies enforces NetworkPolicies in both directions, for every pod of the node.
	EnforceNetworkPolicies bool
	Log                    *slog.Logger
}

// enforce is EnforceNetworkPolicies as users write it.
func (o *Options) enforce() string {
	if o.EnforceNetworkPolicies {
		return console.EnforceAll
	}
	return console.EnforceSelected
}

// Cluster is the agent's connection to its cluster.
type Cluster struct {
	// Kubeconfig is how to reach the API server, "" for as a pod of the cluster.
	Kubeconfig string
	// Namespace is the namespace of the agents, DaemonSet theirs, PodName this agent's.
	Namespace, DaemonSet, PodName string
	// ClusterNetworkPolicies reads those of policy.networking.k8s.io, where they are served.
	ClusterNetworkPolicies bool
	// OwnNodeOnly watches the Node of this agent alone, in place of all Nodes: the cluster ranges of
	// the Corefile protect the others. Policies for nodes, ClusterNetworkPolicies and
	// EnforceNetworkPolicies need all Nodes.
	OwnNodeOnly bool
	// CNIResults is the folder of the network plugins' results, "" for none.
	CNIResults string
	// ClearTaint takes the startup taint from the node when the agent is ready.
	ClearTaint bool
	// ConsoleAddrs are where kubectl namegate is answered.
	ConsoleAddrs []netip.AddrPort
}
