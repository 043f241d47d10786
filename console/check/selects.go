package check

import (
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/labels"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// selectsNothing finds policies that select none of the pods, if any are given.
func (m *Manifests) selectsNothing() []Finding {
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

// everyPod returns the pods, and those of workloads that the cluster may start.
func (m *Manifests) everyPod() iter.Seq[*Pod] {
	return func(yield func(*Pod) bool) {
		for i := range m.Pods {
			if !yield(&m.Pods[i]) {
				return
			}
		}
		for i := 0; m.cluster != nil && i < len(m.cluster.workloads); i++ {
			if !yield(&m.cluster.workloads[i]) {
				return
			}
		}
	}
}

// knowsPods tells whether the pods of a namespace, or with "" of all, are given.
func (m *Manifests) knowsPods(namespace string) bool {
	if m.cluster == nil {
		return len(m.Pods) > 0
	}
	return m.cluster.knows(servedPods, namespace)
}

// noPodOf says why a policy selects none of the pods, "" if it selects one.
func (m *Manifests) noPodOf(p *Policy) string {
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil || !m.knowsPods(p.Namespace) {
		return "" // of an error Validate says so
	}
	var nearest *Pod
	inside, alike := 0, -1
	for pod := range m.everyPod() {
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
	if nearest == nil && m.cluster != nil {
		return fmt.Sprintf("selects nothing: namespace %s has no pod and no workload in %s; correct metadata.namespace, or delete the policy if nothing needs it", p.Namespace, m.source())
	}
	if nearest == nil {
		return fmt.Sprintf("selects nothing: all pods of these manifests are in other namespaces than %s; correct metadata.namespace, or add the manifests of its pods", p.Namespace)
	}
	has := "no labels"
	if len(nearest.Labels) > 0 {
		has = labels.Set(nearest.Labels).String()
	}
	return fmt.Sprintf("selects no pod: namespace %s has %s in %s; compare the labels: %s has %s", p.Namespace, m.counted(inside), m.source(), nearest.name(), has)
}

// noPodOfCluster says why a cluster policy for pods selects none of them, "" if it selects
// one. Pods on the host network are selected by no such policy.
func (m *Manifests) noPodOfCluster(p *ClusterPolicy) string {
	if p.Nodes != nil {
		return m.noNodeOf(p)
	}
	if p.Pods == nil || !m.knowsPods("") || m.cluster != nil && !m.cluster.knows(servedNamespaces, "") {
		return ""
	}
	var beyond *Pod // the pod's own labels are selected, and those of its namespace are not
	candidates := 0
	for pod := range m.everyPod() {
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
		return fmt.Sprintf("selects no pod: %s %s; compare the labels of the pods with podSelector", m.have(), m.counted(candidates))
	case m.Namespaces[beyond.Namespace] == nil && m.cluster == nil:
		return fmt.Sprintf("selects no pod: these manifests have %s, and not the Namespace %s of %s, whose name is then its only label; add its manifest, or compare its labels in the cluster",
			plural(candidates, "pod"), beyond.Namespace, beyond.name())
	}
	return fmt.Sprintf("selects no pod: %s %s; compare the labels of namespaces: %s of %s has %s",
		m.have(), m.counted(candidates), beyond.Namespace, beyond.name(), labels.Set(m.Namespaces[beyond.Namespace]))
}

// counted is how a message calls a number of pods, of everyPod.
func (m *Manifests) counted(n int) string {
	if m.cluster == nil || len(m.cluster.workloads) == 0 {
		return plural(n, "pod")
	}
	return fmt.Sprintf("%d pods and workloads", n)
}

// noNodeOf says why a policy for nodes selects none of them, "" if it selects one.
func (m *Manifests) noNodeOf(p *ClusterPolicy) string {
	for _, labels := range m.Nodes {
		if p.Nodes.Matches(labels) {
			return ""
		}
	}
	if len(m.Nodes) == 0 {
		return ""
	}
	return fmt.Sprintf("selects no node: %s %s; compare subject.nodes with the labels of nodes (kubectl get nodes --show-labels)", m.have(), plural(len(m.Nodes), "node"))
}
