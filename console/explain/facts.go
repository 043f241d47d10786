package explain

import (
	"iter"
	"net/netip"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/audit/recent"
	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/fqdn"
	"github.com/namegate/namegate/policy/netpolicyfor"
)

// Facts is what an agent knows that bears on one pod and one target.
type Facts struct {
	Now time.Time
	Pod policy.Pod
	// View is nil where no policy selects the pod.
	View *policy.View
	// Policies are those of the pod's namespace, whether they select it or not.
	Policies []*v1alpha1.FQDNNetworkPolicy
	// Problems are those of the pod and of the policies of its namespace.
	Problems []policy.Problem
	// Failing is why the latest policies are not in force, "" where they are.
	Failing string
	// Trouble are sentences on what keeps policies from holding for the pod.
	Trouble []string
	// Open are the pod's grants, Ended those for the target that are remembered.
	Open, Ended []policy.GrantInfo
	// Asked is what the pod's last question for the target's name came to, nil where
	// that is not known, as of answers that were granted.
	Asked *recent.Decision
	// Via and Aliases are the names whose answers lead the pod to the target's name, or to the name
	// that is decided in its place (Asked.Left), as of policy.Query.
	Via, Aliases []fqdn.Name
	// Seen are the answers to this pod that held the target's address. Others are
	// those to other pods; Hidden tells that there are further ones to pods that the
	// caller may not see.
	Seen, Others []recent.Sighting
	Hidden       bool
	// Flows are the pod's denied ones, newest first.
	Flows []audit.Flow
	// Blocked is the guard against rebinding: why a name must not open an address, ""
	// if it may.
	Blocked func(fqdn.Name, netip.Addr) string
	// Domain is the cluster's, Resolvers whom pods of the node may ask.
	Domain    fqdn.Name
	Resolvers []netip.Addr
	// DeniesResolver tells whether the policies deny the pod the queries to a resolver, and by
	// which rule, nil for a default; nil: of none.
	DeniesResolver func(netip.Addr) (bool, *policy.Rule)
	// Inside is what the target's address is in the cluster: "pod shop/web",
	// "service", "node"; "" for outside, or not known.
	Inside string
	// Contested are the pod's addresses that other pods claim too: nothing is allowed for
	// these, whatever the policies say.
	Contested []netip.Addr
	// Snapshot is that of View: it has what the peers of NetworkPolicies stand for.
	Snapshot *policy.Snapshot
	// NetworkPolicies are the ordinary ones of the pod's namespace.
	NetworkPolicies []*networkingv1.NetworkPolicy
	// Pods yields every known pod, also those of other nodes; OtherPods is why these are
	// not known, "" where they are.
	Pods      iter.Seq[*policy.Pod]
	OtherPods string
	// OtherNamespaces are the namespaces whose pods of other nodes are known: no NetworkPolicy
	// for pods of this node leads to pods of others. nil: every namespace; empty: none.
	OtherNamespaces []string
	// Services are the cluster's, by each of their addresses.
	Services map[netip.Addr]*policy.Service
	// CountsByName tells whether names count for what a Service leads on from an address; nil: of all.
	CountsByName func(netip.Addr) bool
	// Route returns the interface by which the node reaches an address, "" where it is not known; nil: of none.
	Route func(netip.Addr) string
	// Sees tells whether the caller may see the objects of a namespace; nil: of all.
	Sees func(namespace string) bool
	// SeesCluster tells whether the caller may read the cluster policies of the kind of a
	// policy, by its id; nil: of none.
	SeesCluster func(id string) bool
	// Free are pods with the labels of this one, and maybe more, that no enforcing
	// policy selects: an enforcing policy for the workload would deny to them too.
	Free []string
	// Engine is set where another NetworkPolicy engine may deny what the policies allow.
	Engine *Engine
	// Unresolved tells that the facts are made of manifests: no address of a name is known.
	Unresolved bool
	// Unknown are addresses that stand for those of pods, which manifests do not have.
	Unknown []netip.Addr
	// Place returns where a field of a rule's policy is written, " at file:line", "" for nowhere; nil: of none.
	Place func(r *policy.Rule, path string) string
}

// Engine is what the NetworkPolicy for another engine is made of.
type Engine struct {
	Drops           bool // it drops the pod's queries
	Endpoint        netpolicyfor.Serving
	Services        netpolicyfor.Services
	ClusterPolicies []*v1alpha1.ClusterFQDNNetworkPolicy
	Labels          map[string]string // of the pod's namespace
}
