// Package serve answers people's questions to an agent, over HTTP. It decides by the rights of the caller which
// rows and names an answer has; access says who calls, and the agent hands over what it knows as a State.
package serve

import "context"

// Viewer decides which rows the caller may see.
type Viewer interface {
	// Name is the caller's name, as the API server has it.
	Name() string
	// Sees tells whether the caller may see the rows of a namespace; "" asks for the rows
	// of all namespaces and of the node itself.
	Sees(ctx context.Context, namespace string) (bool, error)
	// SeesCluster tells whether the caller may read the cluster policies of a kind:
	// ClusterNetworkPolicies where standard is true, else ClusterFQDNNetworkPolicies.
	SeesCluster(ctx context.Context, standard bool) (bool, error)
}

// Everything is the Viewer of root on the node.
type Everything struct{}

// Name is root.
func (Everything) Name() string { return "root" }

// Sees says yes.
func (Everything) Sees(context.Context, string) (bool, error) { return true, nil }

// SeesCluster says yes.
func (Everything) SeesCluster(context.Context, bool) (bool, error) { return true, nil }
