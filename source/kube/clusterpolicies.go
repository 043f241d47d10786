package kube

import (
	"fmt"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cfqdnnp"
)

// readClusterPolicy takes a cluster policy as dynamic clients give it. The schema may be newer
// than this agent: a rule with a field that is unknown here is marked, and breaks; so
// does a subject with such a field. Its settings count without theirs.
func readClusterPolicy(object any, before *clusterPolicyEntry) *clusterPolicyEntry {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	e := &clusterPolicyEntry{policy: &v1alpha1.ClusterFQDNNetworkPolicy{}}
	spec, _ := u.Object["spec"].(map[string]any)
	rest, settings := maps.Clone(u.Object), maps.Clone(spec)
	delete(settings, "subject")
	delete(settings, "egress")
	rest["spec"] = settings
	if err := strictly(settings, &v1alpha1.ClusterFQDNNetworkPolicySpec{}); err != nil {
		e.report(cfqdnnp.Object(u.GetName()), policy.ReasonPartiallyInvalid, "spec", "a part of the policy cannot be read by this version, and counts for nothing: %v", err)
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(rest, e.policy) != nil {
		delete(rest, "spec")
		delete(rest, "status")
		e.policy = &v1alpha1.ClusterFQDNNetworkPolicy{}
		_ = strictly(rest, e.policy) // the metadata, which every object has
	}
	to := &e.policy.Spec
	if subject, ok := spec["subject"].(map[string]any); ok {
		if err := strictly(subject, &to.Subject); err != nil {
			to.Subject = v1alpha1.ClusterSubject{Unreadable: err.Error()}
		}
	}
	to.Egress = readRules("egress", spec, func(action, why string) v1alpha1.ClusterEgressRule {
		return v1alpha1.ClusterEgressRule{Action: v1alpha1.Action(action), Unreadable: why}
	})
	e.policy.ManagedFields = nil
	delete(e.policy.Annotations, lastApplied)
	if before != nil && reflect.DeepEqual(before.policy.Spec, e.policy.Spec) {
		e.policy.Spec = before.policy.Spec // shared memory tells the compiler that nothing changed
	}
	return e
}

// readRules reads the rules of a direction one by one. broken makes one that cannot be read.
func readRules[R any](direction string, spec map[string]any, broken func(action, why string) R) []R {
	field, there := spec[direction]
	list, ok := field.([]any)
	if !ok {
		if !there {
			return nil
		}
		return []R{broken("", direction+" is no list")}
	}
	rules := make([]R, len(list))
	for i, item := range list {
		from, _ := item.(map[string]any)
		if err := strictly(from, &rules[i]); err != nil || from == nil {
			action, _ := from["action"].(string)
			rules[i] = broken(action, fmt.Sprintf("the rule cannot be read by this version: %v", err))
		}
	}
	return rules
}

// strictly converts an object; a field that is unknown is an error.
func strictly(from map[string]any, to any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(from, to, true)
}
