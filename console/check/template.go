package check

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/source/manifest"
)

// podTemplate is what counts of the template of a pod.
type podTemplate struct {
	Metadata struct{ Labels map[string]string }
	Spec     struct{ HostNetwork bool }
}

// template returns the pod that an object of the groups apps and batch makes, called
// as the object is, and whether it makes pods.
func template(o *manifest.Object) (policy.Pod, bool) {
	group, _, _ := strings.Cut(o.APIVersion, "/")
	if group != "apps" && group != "batch" || o.Name == "" {
		return policy.Pod{}, false
	}
	var made struct {
		Spec struct {
			Template    *podTemplate
			JobTemplate struct {
				Spec struct{ Template *podTemplate }
			}
		}
	}
	if json.Unmarshal(o.JSON, &made) != nil {
		return policy.Pod{}, false
	}
	t := made.Spec.Template
	if t == nil {
		t = made.Spec.JobTemplate.Spec.Template
	}
	if t == nil {
		return policy.Pod{}, false
	}
	pod := policy.Pod{
		PodRef: policy.PodRef{Namespace: o.Namespace, Name: o.Name}, Labels: t.Metadata.Labels, HostNetwork: t.Spec.HostNetwork,
	}
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	return pod, true
}
