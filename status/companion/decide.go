package companion

import (
	"fmt"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/compile"
)

// OpenAfter is how long after a policy came, or came to enforce or to select others, new
// companions of it open ports: longer than nodes need to enforce the policy, or to say that
// they cannot.
const OpenAfter = 10 * time.Second

// ListTimeout is for how long companions stay as they are while the elected agent has not
// listed the cluster's pods.
const ListTimeout = time.Minute

// round decides, in one call of Reconcile, whose companions open ports.
type round struct {
	*Controller
	now        time.Time
	unlisted   bool // pods and Nodes are not known yet
	unenforced map[string][]*podPlacement
	// open are the companions that open ports, each with the UID of its policy. A policy
	// that selects other pods has another companion.
	open    map[types.NamespacedName]types.UID
	decided map[types.UID]decision
	held    map[string]obstacle // why ports are not opened, by "namespace/name"
	cut     map[string]int      // how many ports had no room, by the same
	next    time.Duration       // when a policy's time comes, 0: none waits
}

// openableSince is since when the policy of one selector may open ports.
type openableSince struct {
	time.Time
	selector *metav1.LabelSelector
}

// rulePorts is what one generation of a policy opens.
type rulePorts struct {
	generation int64
	openable   bool
	ports      *compile.TargetPorts
}

// decision is what holds for all companions of a policy.
type decision struct {
	why    obstacle
	held   bool          // there is an obstacle
	unsure bool          // it is not known whether there is one: each stays as it is
	left   time.Duration // until new ones may open ports
}

// obstacle is why ports are not opened to the pods of a policy.
type obstacle struct {
	cause   string // the same for the same cause
	message string // "": it is not known yet whether there is one
}

func (c *Controller) newRound(now time.Time, objects []*networkingv1.NetworkPolicy) *round {
	r := &round{Controller: c, now: now, open: map[types.NamespacedName]types.UID{}, decided: map[types.UID]decision{}, held: map[string]obstacle{}, cut: map[string]int{}}
	if c.pods == nil {
		return r
	}
	r.unlisted = !c.pods.HasSynced() || !c.nodes.HasSynced()
	r.unenforced = c.unenforced()
	for id, p := range c.state.Policies {
		if !c.state.Accepted[id] || !c.rulePorts(p).openable || !c.o.Ports.requested(p) {
			delete(c.openable, p.UID)
			continue
		}
		since := openableSince{now, &p.Spec.PodSelector}
		if last, known := c.openable[p.UID]; known && equality.Semantic.DeepEqual(last.selector, since.selector) {
			since.Time = last.Time
		}
		c.openable[p.UID] = since // not last: it would keep an old object
	}
	for _, n := range objects {
		if isCompanion(n) && opensPorts(n) {
			r.open[nameOf(n)] = metav1.GetControllerOf(n).UID
		}
	}
	return r
}

// rulePorts returns what a policy opens, computed once for each generation.
func (c *Controller) rulePorts(p *v1alpha1.FQDNNetworkPolicy) rulePorts {
	r, known := c.ports[p.UID]
	if !known || r.generation != p.Generation || p.Generation == 0 {
		r = rulePorts{generation: p.Generation, openable: openable(p)}
		if r.openable {
			r.ports = compile.NewTargetPorts(p, c.services.Domain())
		}
		c.ports[p.UID] = r
	}
	return r
}

// portsOf returns what a companion of a policy opens now beside the endpoint.
func (r *round) portsOf(p *v1alpha1.FQDNNetworkPolicy, n *networkingv1.NetworkPolicy) (ports compile.PodPorts) {
	if _, may := r.openable[p.UID]; !may {
		return ports
	}
	d, known := r.decided[p.UID]
	if !known {
		d = r.decide(p)
		r.decided[p.UID] = d
	}
	owner, has := r.open[nameOf(n)]
	open := has && owner == p.UID
	switch {
	case d.held && (d.left <= 0 || open):
		r.held[p.Namespace+"/"+p.Name] = d.why
		return ports
	case d.held || (d.unsure || d.left > 0) && !open:
		return ports
	}
	ports, r.cut[p.Namespace+"/"+p.Name] = r.rulePorts(p).ports.Bring(r.services)
	return ports
}

// decide decides about a policy that may open ports.
func (r *round) decide(p *v1alpha1.FQDNNetworkPolicy) decision {
	d := decision{left: OpenAfter - r.now.Sub(r.openable[p.UID].Time)}
	if d.left > 0 && (r.next == 0 || d.left < r.next) {
		r.next = d.left
	}
	d.why, d.held, d.unsure = r.obstacle(p, p.Namespace+"/"+p.Name)
	return d
}

// obstacle tells whether and why ports may not be opened to the pods of a policy, or that it
// is not known.
func (r *round) obstacle(p *v1alpha1.FQDNNetworkPolicy, id string) (why obstacle, held, unsure bool) {
	if b, bypassed := r.state.Bypassed[id]; bypassed {
		return obstacle{b.Node + "/" + b.Reason, fmt.Sprintf(
			"companions of the policy open the endpoint alone, since the policy does not hold on the node %s: %s", b.Node, b.Message)}, true, false
	}
	if r.unlisted && r.now.Sub(r.begun) > ListTimeout {
		return obstacle{"pods", "companions of the policy open the endpoint alone, since the elected agent cannot list the cluster's pods and nodes; its log says why"}, true, false
	}
	unsure = r.unlisted
	pods := r.unenforced[p.Namespace]
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
		if r.standing(pod.node) == Unproven {
			unsure = true // whoever was elected before had newer word of it
			continue
		}
		return obstacle{pod.node, fmt.Sprintf(
			"companions of the policy open the endpoint alone until the agent of the node %s says that policies are in force there: the pod %s runs on it", pod.node, nameOf(pod))}, true, false
	}
	return obstacle{}, false, unsure
}
