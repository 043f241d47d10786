package kube

import (
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/policy/api/cnp"
)

// clusterNetworkPolicyEntry is a ClusterNetworkPolicy as it was sent, and whether peers of
// its rules are pods and nodes, so that these must be known.
type clusterNetworkPolicyEntry struct {
	policy      *unstructured.Unstructured
	pods, nodes bool
}

func readClusterNetworkPolicy(object any, before *clusterNetworkPolicyEntry) *clusterNetworkPolicyEntry {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations")
	e := &clusterNetworkPolicyEntry{policy: u}
	if before != nil && cnp.Same(before.policy, u) {
		u.Object["spec"] = before.policy.Object["spec"] // shared memory tells the compiler that nothing changed
		e.pods, e.nodes = before.pods, before.nodes
		return e
	}
	e.pods, e.nodes = cnp.PeersOf(u)
	return e
}

// wroteStandardStatus tells whether only the status and the version of a policy changed.
func wroteStandardStatus(before, after *clusterNetworkPolicyEntry) bool {
	rest := func(u *unstructured.Unstructured) map[string]any {
		object := maps.Clone(u.Object)
		meta, _ := object["metadata"].(map[string]any)
		meta = maps.Clone(meta)
		delete(object, "status")
		delete(meta, "resourceVersion")
		object["metadata"] = meta
		return object
	}
	return reflect.DeepEqual(rest(before.policy), rest(after.policy))
}
