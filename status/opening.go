package status

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/compile"
)

// ReasonCompanionHeld is the reason of the event of a policy whose companions open the
// endpoint alone, since not every node enforces the policy.
const ReasonCompanionHeld = "CompanionHeld"

// ReasonTooManyPorts is the reason of the event of a policy whose names match Services
// that lead to more ports than its companions open.
const ReasonTooManyPorts = "TooManyPorts"

// openAfter is how long after a policy came, or came to enforce or to select others, new
// companions of it open ports: longer than nodes need to enforce it, or to say that they cannot (tellAgain of
// the agent and findingsRest).
const openAfter = 10 * time.Second

// listMost is how long the elected agent leaves companions as they are while it has not
// listed the cluster's pods.
const listMost = time.Minute

// seenPast are the findings of pods whose connections pass the verdict by: what the
// cluster's own engine denies them must stay denied.
var seenPast = [...]string{NotSeen, IPVS, BridgeNotFiltered}

// opening decides, in one look at everything, whose companions open ports.
type opening struct {
	*term
	now      time.Time
	byPolicy map[string][]entry
	doubtful map[string][]*placedPod
	blind    bool // pods and Nodes are not known yet
	// open are the companions that do now, each with the policy that owns it. One that
	// selects other pods is another companion.
	open    map[types.NamespacedName]types.UID
	decided map[types.UID]decision
	held    map[string]obstacle // why they may not, by "namespace/name"
	cut     map[string]int      // how many ports had no room, by the same
	next    time.Duration       // when a policy's time comes, 0: none waits
}

// openableSince is since when the policy of one selector may open ports.
type openableSince struct {
	time.Time
	selector *metav1.LabelSelector
}

// decision is what holds for all companions of a policy.
type decision struct {
	why    obstacle
	held   bool          // there is an obstacle
	unsure bool          // nobody knows: each stays as it is
	left   time.Duration // until new ones may open ports
}

// obstacle is why ports are not opened to the pods of a policy.
type obstacle struct {
	is   string // the same for the same cause
	text string // "": it is not known yet whether there is one
}

func (t *term) opening(now time.Time, policies map[string]*v1alpha1.FQDNNetworkPolicy, others []*networkingv1.NetworkPolicy, problems map[string][]policy.Problem, byPolicy map[string][]entry) *opening {
	o := &opening{term: t, now: now, byPolicy: byPolicy, open: map[types.NamespacedName]types.UID{}, decided: map[types.UID]decision{}, held: map[string]obstacle{}, cut: map[string]int{}}
	if t.pods == nil {
		return o
	}
	o.blind = !t.pods.HasSynced() || !t.nodes.HasSynced()
	o.doubtful = t.doubtful()
	for id, p := range policies {
		if accepted, _, _ := policy.Acceptance(problems["policy "+id]); !accepted || !t.validate(p).openable || !t.o.CompanionPorts.wantsPorts(p) {
			delete(t.openable, p.UID)
		} else {
			since := openableSince{now, &p.Spec.PodSelector}
			if last, known := t.openable[p.UID]; known && equality.Semantic.DeepEqual(last.selector, since.selector) {
				since.Time = last.Time
			}
			t.openable[p.UID] = since // not last: it would keep an old object
		}
	}
	for _, n := range others {
		if isCompanion(n) && hasPorts(n) {
			o.open[nameOf(n)] = metav1.GetControllerOf(n).UID
		}
	}
	return o
}

// ports returns what a companion of a policy opens now beside the endpoint.
func (o *opening) ports(p *v1alpha1.FQDNNetworkPolicy, n *networkingv1.NetworkPolicy) (ports compile.PodPorts) {
	if _, may := o.openable[p.UID]; !may {
		return ports
	}
	d, known := o.decided[p.UID]
	if !known {
		d = o.decide(p)
		o.decided[p.UID] = d
	}
	owner, has := o.open[nameOf(n)]
	open := has && owner == p.UID
	switch {
	case d.held && (d.left <= 0 || open):
		o.held[p.Namespace+"/"+p.Name] = d.why
		return ports
	case d.held || (d.unsure || d.left > 0) && !open:
		return ports
	}
	ports, o.cut[p.Namespace+"/"+p.Name] = o.validate(p).ports.Bring(o.services)
	return ports
}

// decide looks at a policy that may open ports.
func (o *opening) decide(p *v1alpha1.FQDNNetworkPolicy) decision {
	d := decision{left: openAfter - o.now.Sub(o.openable[p.UID].Time)}
	if d.left > 0 && (o.next == 0 || d.left < o.next) {
		o.next = d.left
	}
	d.why, d.held, d.unsure = o.obstacle(p, p.Namespace+"/"+p.Name)
	return d
}

// obstacle tells whether and why ports may not be opened to the pods of a policy, or
// that nobody knows.
func (o *opening) obstacle(p *v1alpha1.FQDNNetworkPolicy, id string) (why obstacle, held, unsure bool) {
	for _, e := range o.byPolicy[id] {
		if slices.Contains(seenPast[:], e.Reason) {
			return obstacle{e.Node + "/" + e.Reason, fmt.Sprintf(
				"companions of the policy open the endpoint alone, since the policy does not hold on the node %s: %s", e.Node, e.Message)}, true, false
		}
	}
	if o.blind && o.now.Sub(o.begun) > listMost {
		return obstacle{"pods", "companions of the policy open the endpoint alone, since the elected agent cannot list the cluster's pods and nodes; its log says why"}, true, false
	}
	unsure = o.blind
	pods := o.doubtful[p.Namespace]
	if len(pods) == 0 {
		return obstacle{}, false, unsure
	}
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil {
		return obstacle{}, true, false // such a policy is not accepted
	}
	for _, pod := range pods {
		if !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if o.survey.standing(pod.node) == notSure {
			unsure = true // whoever was elected before had newer word of it
			continue
		}
		return obstacle{pod.node, fmt.Sprintf(
			"companions of the policy open the endpoint alone until the agent of the node %s says that policies are in force there: the pod %s runs on it", pod.node, nameOf(pod))}, true, false
	}
	return obstacle{}, false, unsure
}

// say emits the events about whose companions do not open what they could. It returns
// when the time of a policy comes that waits.
func (t *term) say(now time.Time, policies map[string]*v1alpha1.FQDNNetworkPolicy, o *opening) time.Duration {
	h := t.companions.herald
	h.begin()
	for _, id := range sortedKeys(policies) {
		p := policies[id]
		if p.DeletionTimestamp != nil {
			continue
		}
		reason, message := t.o.CompanionPorts.objection(p)
		is := message
		if why := o.held[id]; why.text != "" {
			reason, is, message = ReasonCompanionHeld, why.is, why.text
		} else if n := o.cut[id]; n > 0 {
			reason, is, message = ReasonTooManyPorts, "", fmt.Sprintf("the Services that the policy's names match lead to %d ports more than the %d "+
				"for which its companions have room: some of these Services cannot be reached; write narrower names, or allow their pods in a NetworkPolicy", n, compile.MaxTargetPorts)
		}
		if reason != "" && h.due(now, saying{v1alpha1.Kind, id + "/" + string(p.UID) + "/" + is, reason}) {
			t.recorder.Eventf(policyRef(p), nil, corev1.EventTypeWarning, reason, actionOpen, "%s", clip(message, maxNote))
		}
	}
	h.forget(now)
	return o.next
}
