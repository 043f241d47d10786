package kube

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// lastApplied is where kubectl keeps a copy of the whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// policyEntry is a policy and its problems. Without a policy it is left out.
type policyEntry struct {
	policy   *v1alpha1.FQDNNetworkPolicy
	problems []policy.Problem
}

// readPolicy takes a policy as dynamic clients give it. The schema of its kind
// keeps out what cannot be read; where another one let it in, the pods that it
// selects may do nothing by it, and a policy without a selector is left out.
func readPolicy(object any, before *policyEntry) *policyEntry {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	e := &policyEntry{}
	spec, _ := u.Object["spec"].(map[string]any)
	if spec["podSelector"] == nil {
		e.report(u, policy.ReasonInvalid, "spec.podSelector", "spec.podSelector is missing, so the policy selects no pod; write one, or {} for every pod of the namespace")
		return e
	}
	p, err := toPolicy(u.Object)
	if err != nil {
		e.report(u, policy.ReasonPartiallyInvalid, "spec", fmt.Sprintf("the policy cannot be read, so it allows nothing to the pods that it selects: %v", err))
		p, err = toPolicy(selectorAlone(u.Object, spec))
	}
	if err != nil {
		e.problems = nil
		e.report(u, policy.ReasonInvalid, "spec.podSelector", fmt.Sprintf("the policy cannot be read, so it selects no pod: %v", err))
		return e
	}
	p.ManagedFields = nil
	delete(p.Annotations, lastApplied)
	if before != nil && before.policy != nil && equality.Semantic.DeepEqual(before.policy.Spec, p.Spec) {
		p.Spec = before.policy.Spec // shared memory tells the compiler that nothing changed
	}
	e.policy = p
	return e
}

// wroteStatus tells whether only the status and the version of a policy changed.
func wroteStatus(before, after *policyEntry) bool {
	if before.policy == nil || after.policy == nil {
		return false
	}
	a, b := *before.policy, *after.policy
	a.Status, a.ResourceVersion = b.Status, b.ResourceVersion
	return same(&policyEntry{&a, before.problems}, &policyEntry{&b, after.problems})
}

func (e *policyEntry) report(u *unstructured.Unstructured, reason, path, message string) {
	e.problems = append(e.problems, policy.Problem{
		Object: "policy " + u.GetNamespace() + "/" + u.GetName(), Reason: reason, Path: path, Message: message,
	})
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
func listPolicies(entries []*policyEntry) (policies []*v1alpha1.FQDNNetworkPolicy, problems []policy.Problem) {
	for _, e := range entries {
		if e.policy != nil {
			policies = append(policies, e.policy)
		}
		problems = append(problems, e.problems...)
	}
	return policies, problems
}
