package kube

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
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
	e := &podEntry{
		pod: policy.Pod{
			PodRef:      policy.PodRef{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)},
			Labels:      p.Labels,
			HostNetwork: p.Spec.HostNetwork,
			Phase:       string(p.Status.Phase),
			Ports:       policy.NamedPorts(&p.Spec),
		},
		ending:  p.DeletionTimestamp != nil,
		claimed: claimed(p),
	}
	if !e.pod.Finished() {
		e.readAddrs(p)
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

func (e *podEntry) readAddrs(p *corev1.Pod) {
	for i, text := range podIPs(&p.Status) {
		a, err := netip.ParseAddr(text)
		if err != nil {
			e.report(policy.ReasonAddressInvalid, fmt.Sprintf("status.podIPs[%d].ip", i),
				fmt.Sprintf("%q is no address, so it is not used; the network plugin or kubelet of the node gave it", text))
			continue
		}
		if a = a.Unmap(); !slices.Contains(e.pod.IPs, a) {
			e.pod.IPs = append(e.pod.IPs, a)
		}
	}
}

func podIPs(s *corev1.PodStatus) []string {
	var ips []string
	for _, ip := range s.PodIPs {
		ips = append(ips, ip.IP)
	}
	if len(ips) == 0 && s.PodIP != "" {
		ips = []string{s.PodIP}
	}
	return ips
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
