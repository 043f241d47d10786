package status

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
)

const (
	controllerName = "namegate.io/agent"
	// The actions of events: what was being done.
	actionEnforce = "Enforce"
	actionAccept  = "Accept"
	actionOpen    = "OpenEndpoint"
	// maxNote is what the API server takes as an event's note, in bytes.
	maxNote = 1024
)

// How often an event comes again. The API server keeps events for an hour by
// default: 50 minutes keep one of what is still so. What was gone and comes back
// is said again, but not each time that it flaps.
const (
	sayAgain    = 50 * time.Minute
	sayReturned = 10 * time.Minute
	// maxEventsAtOnce bounds a burst; what is left is said a second later.
	maxEventsAtOnce = 32
)

// eventScheme knows no kind: every object comes as a reference.
func eventScheme() *runtime.Scheme { return runtime.NewScheme() }

// saying is what one event says: a reason of one object.
type saying struct {
	kind, object, reason string
}

// said is when it was said last, whether it is so still, and whether it was not so meanwhile.
type said struct {
	at    time.Time
	still bool
	gone  bool
}

// herald emits the events of this node's findings. It is for one goroutine.
type herald struct {
	recorder events.EventRecorder
	said     map[saying]*said
	room     int // how many more may be said in this round
}

func newHerald(recorder events.EventRecorder) *herald {
	return &herald{recorder: recorder, said: map[saying]*said{}}
}

// tell emits what is due of the sorted findings: an event of each policy, for all
// pods of one reason, and one of each pod.
func (h *herald) tell(now time.Time, findings []Finding, policies map[string]*v1alpha1.FQDNNetworkPolicy) {
	h.begin()
	for len(findings) > 0 {
		n := alike(findings)
		h.tellPolicy(now, findings[:n], policies[findings[0].Policy])
		for _, f := range findings[:n] {
			h.tellPod(now, f, policies[f.Policy])
		}
		findings = findings[n:]
	}
	h.forget(now)
}

// begin begins a round; forget ends it.
func (h *herald) begin() {
	for _, s := range h.said {
		s.still = false
	}
	h.room = maxEventsAtOnce
}

// alike returns how many of the first findings have one policy and one reason.
func alike(findings []Finding) int {
	n := 1
	for n < len(findings) && findings[n].Policy == findings[0].Policy && findings[n].Reason == findings[0].Reason {
		n++
	}
	return n
}

func (h *herald) tellPolicy(now time.Time, same []Finding, p *v1alpha1.FQDNNetworkPolicy) {
	f := same[0]
	if p == nil || !h.due(now, saying{v1alpha1.Kind, f.Policy + "/" + string(p.UID), f.Reason}) {
		return
	}
	pods := map[policy.PodRef]bool{}
	for _, s := range same {
		pods[s.Pod] = true
	}
	var related runtime.Object
	if f.Pod.Name != "" {
		related = podRef(f.Pod)
	}
	h.recorder.Eventf(policyRef(p), related, corev1.EventTypeWarning, f.Reason, actionEnforce, "%s", eventNote(f.Message, len(pods)-1))
}

func (h *herald) tellPod(now time.Time, f Finding, p *v1alpha1.FQDNNetworkPolicy) {
	if f.Pod.Name == "" || !h.due(now, saying{"Pod", f.Pod.String() + "/" + f.Pod.UID, f.Reason}) {
		return
	}
	var related runtime.Object
	if p != nil {
		related = policyRef(p)
	}
	h.recorder.Eventf(podRef(f.Pod), related, corev1.EventTypeWarning, f.Reason, actionEnforce, "%s", eventNote(f.Message, 0))
}

func eventNote(message string, others int) string {
	if others <= 0 {
		return clip(message, maxNote)
	}
	more := fmt.Sprintf(" (and %d more pods of this node)", others)
	return clip(message, maxNote-len(more)) + more
}

// due tells whether it is to be said now, and notes that it is so.
func (h *herald) due(now time.Time, what saying) bool {
	s := h.said[what]
	if s != nil {
		if s.still {
			return false // another finding of this round says the same
		}
		s.still = true
		age := now.Sub(s.at)
		if age < sayReturned || age < sayAgain && !s.gone {
			return false
		}
	}
	if h.room == 0 {
		return false
	}
	h.room--
	h.said[what] = &said{at: now, still: true}
	return true
}

// forget drops what is not so any more and was not said for a while.
func (h *herald) forget(now time.Time) {
	for what, s := range h.said {
		s.gone = s.gone || !s.still
		if !s.still && now.Sub(s.at) >= sayReturned {
			delete(h.said, what)
		}
	}
}

func policyRef(p *v1alpha1.FQDNNetworkPolicy) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion().String(), Kind: v1alpha1.Kind, Namespace: p.Namespace, Name: p.Name, UID: p.UID,
	}
}

func podRef(p policy.PodRef) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)}
}
