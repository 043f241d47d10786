package kube

import (
	"fmt"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// lastApplied is where kubectl keeps a copy of the whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// typedEntry is a policy of ours and its problems. Without a policy it is left out.
type typedEntry[P any] struct {
	policy   *P
	problems []policy.Problem
}

type (
	policyEntry        = typedEntry[v1alpha1.FQDNNetworkPolicy]
	clusterPolicyEntry = typedEntry[v1alpha1.ClusterFQDNNetworkPolicy]
	nodePolicyEntry    = typedEntry[v1alpha1.NodeNetworkPolicy]
)

// readPolicy takes a policy as dynamic clients give it. The schema of its kind
// keeps out what cannot be read; where another one let it in, the pods that it
// selects may do nothing by it, and a policy without a selector is left out.
func readPolicy(from any, before *policyEntry) *policyEntry {
	u, ok := from.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	e, object := &policyEntry{}, "policy "+u.GetNamespace()+"/"+u.GetName()
	spec, _ := u.Object["spec"].(map[string]any)
	if spec["podSelector"] == nil {
		e.report(object, policy.ReasonInvalid, "spec.podSelector", "spec.podSelector is missing, so the policy selects no pod; write one, or {} for every pod of the namespace")
		return e
	}
	p, err := toPolicy(u.Object)
	if err != nil {
		e.report(object, policy.ReasonPartiallyInvalid, "spec", "the policy cannot be read, so it allows nothing to the pods that it selects: %v", err)
		p, err = toPolicy(selectorAlone(u.Object, spec))
	}
	if err != nil {
		e.problems = nil
		e.report(object, policy.ReasonInvalid, "spec.podSelector", "the policy cannot be read, so it selects no pod: %v", err)
		return e
	}
	p.ManagedFields = nil
	delete(p.Annotations, lastApplied)
	if before != nil && before.policy != nil && reflect.DeepEqual(before.policy.Spec, p.Spec) {
		p.Spec = before.policy.Spec // shared memory tells the compiler that nothing changed
	}
	e.policy = p
	return e
}

// wroteStatus tells whether only the status and the version of a policy changed.
func wroteStatus[P any](before, after *typedEntry[P]) bool {
	if before.policy == nil || after.policy == nil {
		return false
	}
	a, b := *before.policy, *after.policy
	for _, p := range []*P{&a, &b} {
		fields := reflect.ValueOf(p).Elem()
		fields.FieldByName("Status").SetZero()
		fields.FieldByName("ResourceVersion").SetZero()
	}
	return same(&typedEntry[P]{&a, before.problems}, &typedEntry[P]{&b, after.problems})
}

func (e *typedEntry[P]) report(object, reason, path, format string, args ...any) {
	e.problems = append(e.problems, policy.Problem{Object: object, Reason: reason, Path: path, Message: fmt.Sprintf(format, args...)})
}

func toPolicy(object map[string]any) (*v1alpha1.FQDNNetworkPolicy, error) {
	p := &v1alpha1.FQDNNetworkPolicy{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, p)
	return p, err
}

// selectorAlone returns the object with only its selector and its enforcement in its
// spec.
func selectorAlone(object, spec map[string]any) map[string]any {
	rest := map[string]any{"podSelector": spec["podSelector"]}
	if word, ok := spec["enforcement"].(string); ok {
		rest["enforcement"] = word
	}
	object = maps.Clone(object)
	delete(object, "status")
	object["spec"] = rest
	return object
}

// listPolicies returns the policies and their problems.
func listPolicies[P any](entries []*typedEntry[P]) (policies []*P, problems []policy.Problem) {
	for _, e := range entries {
		if e.policy != nil {
			policies = append(policies, e.policy)
		}
		problems = append(problems, e.problems...)
	}
	return policies, problems
}
