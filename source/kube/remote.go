package kube

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

// RemoteLinger is for how long pods of other nodes are watched after the need for them
// ended, so that a recreated policy finds them.
const RemoteLinger = 10 * time.Minute

// remotePage is how many pods of other nodes are asked for at a time by a server that
// cannot stream them: whole ones take 10 KiB and more each.
const remotePage = 500

// ReasonPeersUnknown means: pods of other nodes are peers of policies, and the API server
// does not tell them.
const ReasonPeersUnknown = "PeersUnknown"

// remoteName is the name of the list-watch in logs and Health.
const remoteName = "pods of other nodes"

// remote watches pods of other nodes while they are needed. But for the store, it is for
// Run's goroutine alone.
type remote struct {
	pods   *store[podEntry]
	stop   context.CancelFunc // nil while they are not watched
	needed bool
	idle   <-chan time.Time // while they are watched and not needed
	// deadline is set while States wait for them, and ends that.
	deadline <-chan time.Time
	// policySpaces are the namespaces with a policy, peerSpaces the namespaces with a
	// NetworkPolicy that leads to pods.
	policySpaces, peerSpaces map[string]bool
	// everySpace: cluster policies may select pods of every namespace. clusterPeers and
	// nodes: some of them lead to pods and to nodes.
	everySpace, clusterPeers, nodes bool
}

// known tells whether pods of other nodes are known, or not needed.
func (r *remote) known() bool { return !r.needed || r.stop != nil && r.pods.synced() }

// updateNeed finds out whether pods of other nodes are needed: some pod of this node is in a
// namespace where policies are, which may make it default-deny, and NetworkPolicies that
// lead to pods; or cluster policies lead to pods. It counts from when it is bound to the node, mostly long before it
// has an address.
func (r *remote) updateNeed(near []*podEntry) {
	r.needed = slices.ContainsFunc(near, func(e *podEntry) bool {
		needs := r.clusterPeers || (r.everySpace || r.policySpaces[e.pod.Namespace]) && r.peerSpaces[e.pod.Namespace]
		return needs && !e.pod.HostNetwork && !e.pod.Finished()
	})
}

// policySpacesOf returns the namespaces of policies.
func policySpacesOf(policies []v1alpha1.FQDNNetworkPolicy) map[string]bool {
	spaces := map[string]bool{}
	for i := range policies {
		spaces[policies[i].Namespace] = true
	}
	return spaces
}

// peerSpacesOf returns the namespaces of the NetworkPolicies that lead to pods.
func peerSpacesOf(entries []*networkPolicyEntry) map[string]bool {
	spaces := map[string]bool{}
	for _, e := range entries {
		if e.pods {
			spaces[e.policy.Namespace] = true
		}
	}
	return spaces
}

// watchRemote begins to watch pods of other nodes when they are needed, and starts the
// timers: for how long States wait for them, and when the watch ends without need.
func (s *Source) watchRemote(ctx context.Context) {
	r := &s.remote
	before := r.needed
	s.gather()
	switch {
	case r.needed:
		r.idle = nil
		if r.stop == nil {
			s.startRemote(ctx)
		}
		if !before {
			r.deadline = s.clock.After(PeersPatience)
		}
	case r.stop != nil && r.idle == nil:
		r.idle = s.clock.After(RemoteLinger)
	}
}

// awaitsRemote tells whether States wait for pods of other nodes. It is over for good
// when these are known or needed no more, or the API server does not tell them.
func (s *Source) awaitsRemote() bool {
	r := &s.remote
	if r.known() || s.link.fails(remoteName) {
		r.deadline = nil
	}
	return r.deadline != nil
}

func (s *Source) startRemote(ctx context.Context) {
	r := &s.remote
	ctx, r.stop = context.WithCancel(ctx)
	r.pods = remoteStore(s.noteRemote, s.node)
	s.assembly.remote.version = 0
	f := &listWatch{name: remoteName, requests: remoteRequests(s.client, s.node), link: s.link, after: s.clock.After, page: remotePage}
	s.run(ctx, f, &corev1.Pod{}, r.pods)
}

func remoteStore(changed func(), node string) *store[podEntry] {
	pods := newStore(changed, readRemote(node))
	pods.trim = trim
	return pods
}

// remoteRequests returns requests for the pods of all nodes but one. A list is trimmed
// page by page, as the store trims a stream.
func remoteRequests(client kubernetes.Interface, node string) requests {
	others := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", node).String()
	}
	pods := client.CoreV1().Pods("")
	list := func(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
		page, err := pods.List(ctx, o)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			trimPod(&page.Items[i])
		}
		return page, nil
	}
	return newRequests(client, others, list, pods.Watch)
}

// endRemote forgets the pods of other nodes.
func (s *Source) endRemote() {
	s.remote.stop()
	s.remote.stop, s.remote.pods, s.remote.idle = nil, nil, nil
}

// readRemote returns a reader of the pods of all nodes but one. It leaves out pods that
// cannot be a peer: pods on the host network, finished pods, and pods without an address.
// A pod's own node reports its problems.
func readRemote(node string) func(any, *podEntry) *podEntry {
	return func(object any, before *podEntry) *podEntry {
		p, ok := object.(*corev1.Pod)
		if !ok || p.Spec.NodeName == "" || p.Spec.NodeName == node || p.Spec.HostNetwork {
			return nil
		}
		e := entryOf(p)
		if len(e.pod.IPs) == 0 {
			return nil
		}
		e.pod.NodeName, e.problems = p.Spec.NodeName, nil
		if before != nil {
			e.pod.Labels = shared(before.pod.Labels, e.pod.Labels)
		}
		return e
	}
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

// unknownPeers returns the problem that pods of other nodes are needed and cannot be
// read; nil if they are known, or on their way.
func (s *Source) unknownPeers() []policy.Problem {
	if s.remote.known() || !s.link.fails(remoteName) {
		return nil
	}
	return []policy.Problem{{
		Object: remoteName, Reason: ReasonPeersUnknown,
		Message: "policies lead to some of them, but the API server does not tell them, so that connections there stay closed, and rules of cluster " +
			"policies that deny pods or pass them on deny every connection; the agent's log has its answer: it must let the agent list and watch pods",
	}}
}
