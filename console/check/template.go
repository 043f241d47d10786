package check

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/source/manifest"
)

// podTemplate is what counts of the template of a pod.
type podTemplate struct {
	Metadata struct{ Labels map[string]string }
	Spec     podSpec
}

// podSpec is what counts of the spec of a pod.
type podSpec struct {
	HostNetwork                bool
	NodeName                   string
	Containers, InitContainers []struct {
		RestartPolicy corev1.ContainerRestartPolicy
		Ports         []corev1.ContainerPort
	}
}

// ports returns the ports of the containers, those without a name too, as policy.NamedPorts
// takes them.
func (s *podSpec) ports() (ports []policy.NamedPort) {
	for i, c := range slices.Concat(s.Containers, s.InitContainers) {
		if i >= len(s.Containers) && c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			continue
		}
		for _, p := range c.Ports {
			if protocol, ok := policy.ProtocolOf(p.Protocol); ok && policy.IsPort(p.ContainerPort) {
				ports = append(ports, policy.NamedPort{Name: p.Name, Protocol: protocol, Port: uint16(p.ContainerPort)})
			}
		}
	}
	return ports
}

// specOfPod returns the spec of a Pod.
func specOfPod(o *manifest.Object) *podSpec {
	var pod struct{ Spec podSpec }
	_ = json.Unmarshal(o.JSON, &pod) // it was decoded once
	return &pod.Spec
}

// template returns the pod that an object of the groups apps and batch makes, called
// as the object is, with its ports, and whether it makes pods.
func template(o *manifest.Object) (policy.Pod, []policy.NamedPort, bool) {
	group, _, _ := strings.Cut(o.APIVersion, "/")
	if group != "apps" && group != "batch" || o.Name == "" {
		return policy.Pod{}, nil, false
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
		return policy.Pod{}, nil, false
	}
	t := cmp.Or(made.Spec.Template, made.Spec.JobTemplate.Spec.Template)
	if t == nil {
		return policy.Pod{}, nil, false
	}
	ref := policy.PodRef{Namespace: cmp.Or(o.Namespace, metav1.NamespaceDefault), Name: o.Name}
	return policy.Pod{PodRef: ref, Labels: t.Metadata.Labels, HostNetwork: t.Spec.HostNetwork}, t.Spec.ports(), true
}
