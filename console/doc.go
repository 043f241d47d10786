// Package console is what people ask of agents and get: the questions an agent
// answers over HTTP, the rows of the answers, and how they are printed. Whom it
// answers, and how an agent is reached, is for others to say.
package console

import (
	"context"
	"net/http"
	"net/url"
)

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

// Agent is one agent that can be asked.
type Agent interface {
	// Node is its node's name, "" where that is not known.
	Node() string
	// Ask sends GET path?query and returns the answer's body, which the caller closes,
	// if the status is 200, and else the *Refusal that the agent gave. An agent that
	// cannot be reached is an *Unreachable.
	Ask(ctx context.Context, path string, query url.Values) (*http.Response, error)
}
