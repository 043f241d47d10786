package convert

import (
	"encoding/json"
	"fmt"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// gkeVersion is the apiVersion of GKE's FQDNNetworkPolicy. Source:
// https://github.com/GoogleCloudPlatform/gke-networking-api, apis/fqdnnetworkpolicy/v1alpha1.
const gkeVersion = "networking.gke.io/v1alpha1"

// gke converts an object of GKE's kind: it has the same fields. GKE reads several asterisks in a
// row as any number of characters of one label, so that several are as good as one. Here ** as the
// first label is one or more labels.
func (o *object) gke() {
	var object map[string]any
	if err := json.Unmarshal(o.json, &object); err != nil {
		o.note(Failed, "", "%v", err)
		return
	}
	object["apiVersion"] = v1alpha1.GroupVersion().String()
	if _, there := object["status"]; there {
		delete(object, "status")
		o.note(Dropped, "status", "the agents write their own")
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		for _, field := range []string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"} {
			delete(metadata, field) // the API server's
		}
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
		}
	}
	spec, _ := object["spec"].(map[string]any)
	rules, _ := spec["egress"].([]any)
	for i, rule := range rules {
		rule, _ := rule.(map[string]any)
		matches, _ := rule["matches"].([]any)
		for j, match := range matches {
			match, _ := match.(map[string]any)
			pattern, _ := match["pattern"].(string)
			one := asterisks.ReplaceAllString(pattern, "*")
			if one == pattern {
				continue
			}
			match["pattern"] = one
			path := fmt.Sprintf("spec.egress[%d].matches[%d].pattern", i, j)
			if one == "*" {
				o.note(Wider, path, "%q is a name of one label in GKE, and %q is every name; write the names that are meant", pattern, one)
				continue
			}
			o.note(Changed, path, "%q is %q: GKE reads several asterisks as one, and ** as the first label is one or more labels here", pattern, one)
		}
	}
	o.write(object)
}
