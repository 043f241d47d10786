package check

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// selectsNothing finds policies that select none of the pods, if any are given.
func (m *Manifests) selectsNothing() []Finding {
	if len(m.Pods) == 0 {
		return nil
	}
	var findings []Finding
	for i := range m.Policies {
		p := &m.Policies[i]
		if message := m.noPodOf(p); message != "" {
			findings = append(findings, p.finding(Warning, SelectsNothing, "spec.podSelector", message))
		}
	}
	for i := range m.ClusterPolicies {
		p := &m.ClusterPolicies[i]
		if message := m.noPodOfCluster(p); message != "" {
			findings = append(findings, p.finding(Warning, SelectsNothing, "spec.subject", message))
		}
	}
	return findings
}

// noPodOf says why a policy selects none of the pods, "" if it selects one.
func (m *Manifests) noPodOf(p *Policy) string {
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil {
		return "" // Validate says so
	}
	var nearest *Pod
	inside, alike := 0, -1
	for i := range m.Pods {
		pod := &m.Pods[i]
		if pod.Namespace != p.Namespace {
			continue
		}
		if selector.Matches(labels.Set(pod.Labels)) {
			return ""
		}
		inside++
		same := 0
		for key, value := range p.Spec.PodSelector.MatchLabels {
			if pod.Labels[key] == value {
				same++
			}
		}
		if same > alike {
			nearest, alike = pod, same
		}
	}
	if nearest == nil {
		return fmt.Sprintf("selects nothing: all pods of these manifests are in other namespaces than %s; correct metadata.namespace, or add the manifests of its pods", p.Namespace)
	}
	has := "no labels"
	if len(nearest.Labels) > 0 {
		has = labels.Set(nearest.Labels).String()
	}
	return fmt.Sprintf("selects no pod: namespace %s has %s in these manifests; compare the labels: %s has %s", p.Namespace, plural(inside, "pod"), nearest.name(), has)
}

// noPodOfCluster says why a cluster policy for pods selects none of them, "" if it selects
// one. Pods on the host network are selected by no such policy.
func (m *Manifests) noPodOfCluster(p *ClusterPolicy) string {
	if p.Pods == nil {
		return ""
	}
	var beyond *Pod // the pod's own labels are selected, and those of its namespace are not
	candidates := 0
	for i := range m.Pods {
		pod := &m.Pods[i]
		if pod.HostNetwork {
			continue
		}
		if candidates++; p.Selects(m.namespaceLabels(pod.Namespace), pod.Labels) {
			return ""
		}
		if beyond == nil && p.Pods.Matches(pod.Labels) {
			beyond = pod
		}
	}
	switch {
	case candidates == 0:
		return ""
	case beyond == nil:
		return fmt.Sprintf("selects no pod: these manifests have %s; compare the labels of the pods with podSelector", plural(candidates, "pod"))
	case m.Namespaces[beyond.Namespace] == nil:
		return fmt.Sprintf("selects no pod: these manifests have %s, and not the Namespace %s of %s, whose name is then its only label; add its manifest, or compare its labels in the cluster",
			plural(candidates, "pod"), beyond.Namespace, beyond.name())
	}
	return fmt.Sprintf("selects no pod: these manifests have %s; compare the labels of namespaces: %s of %s has %s",
		plural(candidates, "pod"), beyond.Namespace, beyond.name(), labels.Set(m.Namespaces[beyond.Namespace]))
}
