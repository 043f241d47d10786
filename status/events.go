package status

import (
	"context"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/policy"
)

const (
	controllerName = "namegate.io/agent"
	// The actions of events.
	actionEnforce = "Enforce"
	actionAccept  = "Accept"
	// maxNote is the most bytes of an event's note that the API server accepts.
	maxNote = 1024
)

// eventSink writes the events of objects without a namespace to kube-system: the API server takes them
// there and in default alone, whose readers may not see cluster policies.
type eventSink struct{ events.EventSink }

func (s eventSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return s.EventSink.Create(ctx, placed(e)) //nolint:wrapcheck // the broadcaster reads the error
}

func (s eventSink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	return s.EventSink.Patch(ctx, placed(e), data) //nolint:wrapcheck // the broadcaster reads the error
}

func placed(e *eventsv1.Event) *eventsv1.Event {
	if e.Regarding.Namespace == "" {
		e = e.DeepCopy()
		e.Namespace = metav1.NamespaceSystem
	}
	return e
}

// emit emits an event of each policy and reason among sorted findings, for all pods, and one of each pod
// and reason. Of the cluster policies only those of nodes have events. The recorder makes one series of
// events that are emitted again, and refreshes it while they are.
func emit(recorder events.EventRecorder, findings []Finding, s *State) {
	x := newIndex(s)
	emitted := map[string]bool{}
	// A series of events is one of object, reason and related object, and keeps its first note.
	of := func(object *corev1.ObjectReference, related runtime.Object, f Finding, others int) {
		if id := object.String() + f.Reason; !emitted[id] {
			emitted[id] = true
			recorder.Eventf(object, related, corev1.EventTypeWarning, f.Reason, actionEnforce, "%s", eventNote(f, others))
		}
	}
	for len(findings) > 0 {
		n := sameCause(findings)
		same, k := findings[:n], x.keys[findings[0].Policy]
		findings = findings[n:]
		if same[0].Reason == ReasonBesideNetworkPolicies {
			continue
		}
		if p := x.policies[k]; p != nil && (k.namespace != "" || ofNodes(same[0].Reason)) {
			pods := map[policy.PodRef]bool{}
			for _, f := range same {
				pods[f.Pod] = true
			}
			of(k.reference(p), subjectReference(same[0].Pod), same[0], len(pods)-1)
		}
		for _, f := range same {
			if f.Pod.Name != "" {
				of(subjectReference(f.Pod), nil, f, 0)
			}
		}
	}
}

// sameCause returns how many of the first findings have one policy and one reason.
func sameCause(findings []Finding) int {
	n := 1
	for n < len(findings) && findings[n].Policy == findings[0].Policy && findings[n].Reason == findings[0].Reason {
		n++
	}
	return n
}

// eventNote returns the text of a finding. That of a policy for nodes is in the policy's condition
// alone, for those who may read the policy.
func eventNote(f Finding, others int) string {
	if ofNodes(f.Reason) {
		return f.Pod.String() + " does not enforce a policy for nodes: the condition " + ConditionEnforced + " of the policy says why"
	}
	if others <= 0 {
		return clip(f.Message, maxNote)
	}
	const more = " (and other pods of this node)"
	return clip(f.Message, maxNote-len(more)) + more
}

// subjectReference returns the reference to a pod or, for a policy.NodeRef, to a node, whose name the
// kubelet writes as UID in the events of its node.
func subjectReference(p policy.PodRef) *corev1.ObjectReference {
	if p.Namespace != "" {
		return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}
	}
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: p.Name, UID: types.UID(p.Name)}
}

// clip shortens a text to at most n bytes and leaves whole characters.
func clip(text string, n int) string {
	const end = "…"
	if len(text) <= n {
		return text
	}
	cut := n - len(end)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + end
}
