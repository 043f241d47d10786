package status

import (
	"fmt"
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
// all pods of one reason, and one of each pod.
func (e *findingEvents) emit(now time.Time, findings []Finding, policies map[string]*v1alpha1.FQDNNetworkPolicy) {
	e.dedup.Begin()
	for len(findings) > 0 {
		n := sameCause(findings)
		if findings[0].Reason != ReasonBesideNetworkPolicies {
			e.ofPolicy(now, findings[:n], policies[findings[0].Policy])
			for _, f := range findings[:n] {
				e.ofPod(now, f, policies[f.Policy])
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

func (e *findingEvents) ofPolicy(now time.Time, same []Finding, p *v1alpha1.FQDNNetworkPolicy) {
	f := same[0]
	if p == nil || !e.dedup.Due(now, event.Key{Kind: v1alpha1.Kind, Object: f.Policy + "/" + string(p.UID), Reason: f.Reason}) {
		return
	}
	pods := map[policy.PodRef]bool{}
	for _, s := range same {
		pods[s.Pod] = true
	}
	var related runtime.Object
	if f.Pod.Name != "" {
		related = event.Pod(f.Pod)
	}
	e.recorder.Eventf(event.Policy(p), related, corev1.EventTypeWarning, f.Reason, actionEnforce, "%s", eventNote(f.Message, len(pods)-1))
}

func (e *findingEvents) ofPod(now time.Time, f Finding, p *v1alpha1.FQDNNetworkPolicy) {
	if f.Pod.Name == "" || !e.dedup.Due(now, event.Key{Kind: "Pod", Object: f.Pod.String() + "/" + f.Pod.UID, Reason: f.Reason}) {
		return
	}
	var related runtime.Object
	if p != nil {
		related = event.Policy(p)
	}
	e.recorder.Eventf(event.Pod(f.Pod), related, corev1.EventTypeWarning, f.Reason, actionEnforce, "%s", eventNote(f.Message, 0))
}

func eventNote(message string, others int) string {
	if others <= 0 {
		return event.Clip(message, event.MaxNote)
	}
	more := fmt.Sprintf(" (and %d more pods of this node)", others)
	return event.Clip(message, event.MaxNote-len(more)) + more
}
