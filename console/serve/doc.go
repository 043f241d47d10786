// Package serve answers people's questions to an agent, over HTTP. It decides by the rights of the caller which
// rows and names an answer has; access says who calls, and the agent hands over what it knows as a State.
package serve

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/nnp"
)

// Viewer decides which rows the caller may see.
type Viewer interface {
	// Name is the caller's name, as the API server has it.
	Name() string
	// May tells whether the caller has a right.
	May(context.Context, Right) (bool, error)
}

// Right is what opens rows: to get the objects of a kind in a namespace, "" for all.
type Right struct {
	Kind      schema.GroupResource
	Namespace string
}

// RowsOf is the right that opens the rows of a namespace; of "" those of all namespaces and of the node itself.
func RowsOf(namespace string) Right {
	return Right{v1alpha1.GroupVersionResource().GroupResource(), namespace}
}

// ClusterPolicies is the right to read the cluster policies of the kind of a policy, by its id.
func ClusterPolicies(id string) Right {
	if cnp.IsID(id) {
		return Right{Kind: cnp.Resource().GroupResource()}
	}
	if _, ofNodes := nnp.Name(id); ofNodes {
		return Right{Kind: v1alpha1.NodeGroupVersionResource().GroupResource()}
	}
	return Right{Kind: v1alpha1.ClusterGroupVersionResource().GroupResource()}
}

// Everything is the Viewer of root on the node.
type Everything struct{}

// Name is root.
func (Everything) Name() string { return "root" }

// May says yes.
func (Everything) May(context.Context, Right) (bool, error) { return true, nil }
