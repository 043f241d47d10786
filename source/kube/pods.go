package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy"
)

// networkStatus is the annotation in which a network plugin that gives pods several
// interfaces says which it gave (Network Plumbing Working Group, "Network Attachment
// Definition" standard, §4.1.2).
const networkStatus = "k8s.v1.cni.cncf.io/network-status"

// podEntry has the used fields of a pod.
type podEntry struct {
	pod policy.Pod
	// ending: the pod is terminating. Its containers may run on for long.
	ending bool
	// claimed is when the pod got the addresses that it has, in Unix seconds, as
	// nearly as its object tells.
	claimed  int64
	problems []policy.Problem
}

// readPod returns a reader of the pods of one node.
func readPod(node string) func(any, *podEntry) *podEntry {
	return func(object any, before *podEntry) *podEntry {
		p, ok := object.(*corev1.Pod)
		if !ok || p.Spec.NodeName != node {
			return nil
		}
		e := entryOf(p)
		e.readInterfaces(p.Annotations[networkStatus])
		if before != nil {
			e.pod.Labels = shared(before.pod.Labels, e.pod.Labels)
		}
		return e
	}
}

// entryOf returns the used fields of a pod of any node.
func entryOf(p *corev1.Pod) *podEntry {
	e := &podEntry{ending: p.DeletionTimestamp != nil, claimed: claimed(p)}
	e.pod = policy.PodOf(p, func(i int, text string, _ error) {
		e.problems = append(e.problems, policy.Problem{Object: "pod " + p.Namespace + "/" + p.Name, Reason: policy.ReasonAddressInvalid, Path: fmt.Sprintf("status.podIPs[%d].ip", i),
			Message: fmt.Sprintf("%q is no address, so it is not used; the network plugin or kubelet of the node gave it", text)})
	})
	if e.pod.Finished() {
		e.pod.IPs, e.problems = nil, nil
	}
	return e
}

// claimed returns when the pod's network was last set up, or at least not before
// when the pod was made.
func claimed(p *corev1.Pod) int64 {
	t := p.CreationTimestamp.Time
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue && c.LastTransitionTime.After(t) {
			t = c.LastTransitionTime.Time
		}
	}
	if t.IsZero() {
		return 0
	}
	return t.Truncate(time.Second).Unix()
}

func (e *podEntry) report(reason, path, message string) {
	e.problems = append(e.problems, policy.Problem{Object: "pod " + e.pod.String(), Reason: reason, Path: path, Message: message})
}

// readInterfaces finds out whether the pod has more than one interface.
func (e *podEntry) readInterfaces(annotation string) {
	if annotation == "" {
		return
	}
	var networks []struct {
		Interface string `json:"interface"`
	}
	if err := json.Unmarshal([]byte(annotation), &networks); err != nil {
		e.report(policy.ReasonPartiallyInvalid, "metadata.annotations["+networkStatus+"]",
			fmt.Sprintf("the list of the pod's interfaces cannot be read, so it is unknown whether it has several: %v", err))
		return
	}
	names := map[string]bool{}
	for i, n := range networks {
		if n.Interface == "" { // a device without a name in the pod
			n.Interface = fmt.Sprint(i)
		}
		names[n.Interface] = true
	}
	e.pod.SecondInterfaces = len(names) > 1
}

// readRemote returns a reader of the pods of all nodes but one. It leaves out pods that
// cannot be a peer: pods on the host network, finished pods, and pods without an address, or
// whose addresses another pod may have: not every namespace is read, of which the claims tell.
// A pod's own node reports its problems.
func readRemote(node string) func(any, *podEntry) *podEntry {
	return func(object any, before *podEntry) *podEntry {
		p, ok := object.(*corev1.Pod)
		if !ok || p.Spec.NodeName == "" || p.Spec.NodeName == node || p.Spec.HostNetwork {
			return nil
		}
		e := entryOf(p)
		if len(e.pod.IPs) == 0 || e.ending && released(p) {
			return nil
		}
		e.pod.NodeName, e.problems = p.Spec.NodeName, nil
		if before != nil {
			e.pod.Labels = shared(before.pod.Labels, e.pod.Labels)
		}
		return e
	}
}

// released tells whether a pod has no network any more.
func released(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReadyToStartContainers {
			return c.Status == corev1.ConditionFalse
		}
	}
	return false
}

var errNoPod = errors.New("not a pod")

// trim is trimPod for reflectors.
func trim(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return nil, errNoPod
	}
	trimPod(p)
	return p, nil
}

// trimPod takes from a pod all that entryOf does not read.
func trimPod(p *corev1.Pod) {
	named := func(containers []corev1.Container) (kept []corev1.Container) {
		for _, c := range containers {
			if len(c.Ports) > 0 {
				kept = append(kept, corev1.Container{Ports: c.Ports, RestartPolicy: c.RestartPolicy})
			}
		}
		return kept
	}
	*p = corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Labels: p.Labels,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
		},
		Spec: corev1.PodSpec{
			NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork, Containers: named(p.Spec.Containers), InitContainers: named(p.Spec.InitContainers),
		},
		Status: corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs, Conditions: started(p.Status.Conditions)},
	}
}

// started returns the condition that says since when a pod has its network.
func started(conditions []corev1.PodCondition) []corev1.PodCondition {
	for i := range conditions {
		if c := &conditions[i]; c.Type == corev1.PodReadyToStartContainers {
			return []corev1.PodCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	return nil
}
