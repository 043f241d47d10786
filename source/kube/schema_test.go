package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// TestOutdatedSchema: without ttl.inUse Expire counts, and a single problem of the kind tells.
// What the object has, counts.
func TestOutdatedSchema(t *testing.T) {
	for name, c := range map[string]struct {
		ttl      any
		want     v1alpha1.InUse
		outdated bool
	}{
		"no ttl":             {nil, v1alpha1.InUseExpire, true},
		"the earlier fields": {map[string]any{"minSeconds": int64(30)}, v1alpha1.InUseExpire, true},
		"Renew":              {map[string]any{"inUse": "Renew"}, v1alpha1.InUseRenew, false},
		"Expire":             {map[string]any{"inUse": "Expire"}, v1alpha1.InUseExpire, false},
		"a later word":       {map[string]any{"inUse": "Ask"}, "Ask", false},
	} {
		change := func(u *unstructured.Unstructured) *unstructured.Unstructured {
			unstructured.RemoveNestedField(u.Object, "spec", "ttl")
			if c.ttl == nil {
				return u
			}
			return set(t, u, c.ttl, "spec", "ttl")
		}
		var entries []*policyEntry
		var cluster []*clusterPolicyEntry
		for _, object := range []string{"a", "b"} {
			entries = append(entries, readPolicy(change(aPolicy(object, "www.example.org")), nil))
			cluster = append(cluster, readClusterPolicy(change(aClusterPolicy(object, "www.example.org")), nil))
		}
		policies, problems := listPolicies(entries)
		clusterPolicies, more := listClusterPolicies(cluster)
		if policies[1].Spec.TTL.InUse != c.want || clusterPolicies[1].Spec.TTL.InUse != c.want {
			t.Errorf("%s: %q, %q, want %q", name, policies[1].Spec.TTL.InUse, clusterPolicies[1].Spec.TTL.InUse, c.want)
		}
		var got []string
		for _, p := range append(problems, more...) {
			got = append(got, p.Object+" "+p.Reason+" "+p.Path)
		}
		var want []string
		if c.outdated {
			want = []string{"fqdnnetworkpolicies SchemaOutdated spec.ttl.inUse", "clusterfqdnnetworkpolicies SchemaOutdated spec.ttl.inUse"}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}
