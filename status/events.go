package status

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/status/event"
)

const (
	controllerName = "namegate.io/agent"
	// The actions of events.
	actionEnforce = "Enforce"
	actionAccept  = "Accept"
)

// eventScheme knows no kind: every object comes as a reference.
func eventScheme() *runtime.Scheme { return runtime.NewScheme() }

// findingEvents emits the events of this node's findings. It is for one goroutine.
type findingEvents struct {
	recorder events.EventRecorder
	dedup    event.Dedup
}

// emit emits the events that are due for the sorted findings: an event of each policy, for
// all pods of one reason, and one of each pod. Of the cluster policies only those of nodes have events.
func (e *findingEvents) emit(now time.Time, findings []Finding, policies map[string]*v1alpha1.FQDNNetworkPolicy, cluster []*v1alpha1.ClusterFQDNNetworkPolicy) {
	e.dedup.Begin()
	for len(findings) > 0 {
		n := sameCause(findings)
		var object *corev1.ObjectReference
		if p := policies[findings[0].Policy]; p != nil {
			object = event.Policy(p)
		} else if i := slices.IndexFunc(cluster, func(p *v1alpha1.ClusterFQDNNetworkPolicy) bool { return p.Name == findings[0].Policy }); i >= 0 && ofNodes(findings[0].Reason) {
			object = event.ClusterPolicy(cluster[i])
		}
		if findings[0].Reason != ReasonBesideNetworkPolicies {
			e.ofPolicy(now, findings[:n], object)
			for _, f := range findings[:n] {
				e.ofPod(now, f, object)
			}
		}
		findings = findings[n:]
	}
	e.dedup.End(now)
}

// sameCause returns how many of the first findings have one policy and one reason.
func sameCause(findings []Finding) int {
	n := 1
	for n < len(findings) && findings[n].Policy == findings[0].Policy && findings[n].Reason == findings[0].Reason {
		n++
	}
	return n
}

func (e *findingEvents) ofPolicy(now time.Time, same []Finding, p *corev1.ObjectReference) {
	f := same[0]
	if p == nil || !e.dedup.Due(now, event.Key{Kind: p.Kind, Object: f.Policy + "/" + string(p.UID), Reason: f.Reason}) {
		return
	}
	pods := map[policy.PodRef]bool{}
	for _, s := range same {
		pods[s.Pod] = true
	}
	var related runtime.Object
	if f.Pod.Name != "" {
		related = event.Subject(f.Pod)
	}
	e.recorder.Eventf(p, related, corev1.EventTypeWarning, f.Reason, actionEnforce, "%s", eventNote(f.Message, len(pods)-1))
}

func (e *findingEvents) ofPod(now time.Time, f Finding, p *corev1.ObjectReference) {
	subject := event.Subject(f.Pod)
	if f.Pod.Name == "" || !e.dedup.Due(now, event.Key{Kind: subject.Kind, Object: f.Pod.String() + "/" + f.Pod.UID, Reason: f.Reason}) {
		return
	}
	var related runtime.Object
	if p != nil {
		related = p
	}
	e.recorder.Eventf(subject, related, corev1.EventTypeWarning, f.Reason, actionEnforce, "%s", eventNote(f.Message, 0))
}

func eventNote(message string, others int) string {
	if others <= 0 {
		return event.Clip(message, event.MaxNote)
	}
	more := fmt.Sprintf(" (and %d more pods of this node)", others)
	return event.Clip(message, event.MaxNote-len(more)) + more
}
