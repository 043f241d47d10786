package kube

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/policy"
)

// ReasonSchemaOutdated means: the API server has an older CRD of a kind of policies than this
// agent.
const ReasonSchemaOutdated = "SchemaOutdated"

// lacksInUse tells whether a spec has no ttl.inUse. A CRD that has the field sets its default.
// An older CRD removes the field from the objects that users write, also where it is Expire.
func lacksInUse(spec map[string]any) bool {
	_, there, err := unstructured.NestedFieldNoCopy(spec, "ttl", "inUse")
	return spec != nil && !there && err == nil
}

// outdatedSchema is the problem of a kind whose CRD is older.
func outdatedSchema(resource string) policy.Problem {
	return policy.Problem{
		Object: resource, Reason: ReasonSchemaOutdated, Path: "spec.ttl.inUse",
		Message: "the installed CRD is older than the agent and removes the field, so that Expire counts for policies without it; apply the CRDs of the agent's version",
	}
}
