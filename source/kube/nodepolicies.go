package kube

import (
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// readNodePolicy takes a policy for nodes as dynamic clients give it. The schema may be newer than this
// agent: a rule with a field that is unknown here is marked, and breaks; so does a policy with such a
// field elsewhere.
func readNodePolicy(object any, before *nodePolicyEntry) *nodePolicyEntry {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	e := &nodePolicyEntry{policy: &v1alpha1.NodeNetworkPolicy{}}
	spec, _ := u.Object["spec"].(map[string]any)
	rest, settings := maps.Clone(u.Object), maps.Clone(spec)
	delete(rest, "spec")
	delete(settings, "ingress")
	delete(settings, "egress")
	if runtime.DefaultUnstructuredConverter.FromUnstructured(rest, e.policy) != nil {
		delete(rest, "status")
		e.policy = &v1alpha1.NodeNetworkPolicy{}
		_ = strictly(rest, e.policy) // the metadata, which every object has
	}
	to := &e.policy.Spec
	if err := strictly(settings, to); err != nil {
		*to = v1alpha1.NodeNetworkPolicySpec{Unreadable: err.Error()}
	}
	to.Ingress = readRules("ingress", spec, func(action, why string) v1alpha1.NodeIngressRule {
		return v1alpha1.NodeIngressRule{Action: v1alpha1.NodeAction(action), Unreadable: why}
	})
	to.Egress = readRules("egress", spec, func(action, why string) v1alpha1.NodeEgressRule {
		return v1alpha1.NodeEgressRule{Action: v1alpha1.NodeAction(action), Unreadable: why}
	})
	e.policy.ManagedFields = nil
	delete(e.policy.Annotations, lastApplied)
	if before != nil && reflect.DeepEqual(before.policy.Spec, e.policy.Spec) {
		e.policy.Spec = before.policy.Spec // shared memory tells the compiler that nothing changed
	}
	return e
}

// nodePolicyPeers tells whether peers of policies for nodes are pods, and nodes.
func nodePolicyPeers(entries []*nodePolicyEntry) (pods, nodes bool) {
	add := func(p *v1alpha1.NodePeers) { pods, nodes = pods || p.Pods != nil, nodes || p.Nodes != nil }
	for _, e := range entries {
		for i := range e.policy.Spec.Ingress {
			add(&e.policy.Spec.Ingress[i].NodePeers)
		}
		for i := range e.policy.Spec.Egress {
			add(&e.policy.Spec.Egress[i].NodePeers)
		}
	}
	return pods, nodes
}
