package check

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/namegate/namegate/console"
)

// selectsNothing says why a policy selects none of the pods or nodes, if any are given; "" if
// it selects one.
func (m *Manifests) selectsNothing(p *Policy) string {
	switch {
	case p.own != nil:
		return m.noPodOf(p)
	case p.ofNodes != nil:
		return m.noNodeOf(p)
	case p.ofCluster():
		return m.noPodOfCluster(p)
	}
	return ""
}

// everyPod returns the pods, and those of workloads that the cluster may start.
func (m *Manifests) everyPod() []Pod {
	if m.cluster != nil && m.cluster.selectable != nil {
		return m.cluster.selectable
	}
	return m.Pods
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
	if p.Pods == nil || !m.knowsPods(p.namespace) {
		return "" // of a selector that cannot be read a problem says so
	}
	var nearest *Pod
	inside, alike, all := 0, -1, m.everyPod()
	for i := range all {
		pod := &all[i]
		if pod.Namespace != p.namespace {
			continue
		}
		if m.selects(p, pod) {
			return ""
		}
		inside++
		same := 0
		for key, value := range p.own.Spec.PodSelector.MatchLabels {
			if pod.Labels[key] == value {
				same++
			}
		}
		if same > alike {
			nearest, alike = pod, same
		}
	}
	if nearest == nil && m.cluster != nil {
		return fmt.Sprintf("selects nothing: namespace %s has no pod and no workload in %s; correct metadata.namespace, or delete the policy if nothing needs it", p.namespace, m.source())
	}
	if nearest == nil {
		return fmt.Sprintf("selects nothing: all pods of these manifests are in other namespaces than %s; correct metadata.namespace, or add the manifests of its pods", p.namespace)
	}
	has := "no labels"
	if len(nearest.Labels) > 0 {
		has = labels.Set(nearest.Labels).String()
	}
	return fmt.Sprintf("selects no pod: namespace %s has %s in %s; compare the labels: %s has %s", p.namespace, m.counted(inside), m.source(), nearest.name(), has)
}

// noPodOfCluster says why a cluster policy for pods selects none of them, "" if it selects
// one. Pods on the host network are selected by no such policy.
func (m *Manifests) noPodOfCluster(p *Policy) string {
	if p.Pods == nil || !m.knowsPods("") || m.cluster != nil && !m.cluster.knows(servedNamespaces, "") {
		return ""
	}
	var beyond *Pod // the pod's own labels are selected, and those of its namespace are not
	candidates, all := 0, m.everyPod()
	for i := range all {
		pod := &all[i]
		if pod.HostNetwork {
			continue
		}
		if candidates++; m.selects(p, pod) {
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
			console.Plural(candidates, "pod"), beyond.Namespace, beyond.name())
	}
	return fmt.Sprintf("selects no pod: %s %s; compare the labels of namespaces: %s of %s has %s",
		m.have(), m.counted(candidates), beyond.Namespace, beyond.name(), labels.Set(m.Namespaces[beyond.Namespace]))
}

// counted is how a message calls a number of pods, of everyPod.
func (m *Manifests) counted(n int) string {
	if len(m.everyPod()) == len(m.Pods) {
		return console.Plural(n, "pod")
	}
	return fmt.Sprintf("%d pods and workloads", n)
}

// noNodeOf says why a policy for nodes selects none of them, "" if it selects one.
func (m *Manifests) noNodeOf(p *Policy) string {
	for _, labels := range m.Nodes {
		if p.Nodes == nil || p.Nodes.Matches(labels) {
			return ""
		}
	}
	if len(m.Nodes) == 0 {
		return ""
	}
	return fmt.Sprintf("selects no node: %s %s; compare nodeSelector with the labels of nodes (kubectl get nodes --show-labels)", m.have(), console.Plural(len(m.Nodes), "node"))
}
