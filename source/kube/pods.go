package kube

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

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
