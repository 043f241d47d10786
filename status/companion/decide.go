package companion

import (
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/compile"
)

// OpenAfter is how long after a policy came, or came to enforce or to select others, new
// companions of it open ports: longer than nodes need to enforce the policy, or to report
// that its connections bypass them.
const OpenAfter = 10 * time.Second

// round decides, in one call of Reconcile, whose companions open ports.
type round struct {
	*Controller
	now time.Time
	// open are the companions that open ports, each with the UID of its policy. A policy
	// that selects other pods has another companion.
	open map[types.NamespacedName]types.UID
	held map[string]bool // policies whose ports stay closed because of a bypass, by "namespace/name"
	cut  map[string]int  // how many ports had no room, by the same
	next time.Duration   // when a policy's time comes, 0: none waits
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

func (c *Controller) newRound(now time.Time, objects []*networkingv1.NetworkPolicy) *round {
	r := &round{Controller: c, now: now, open: map[types.NamespacedName]types.UID{}, held: map[string]bool{}, cut: map[string]int{}}
	c.policies = c.state.policies(objects)
	for _, p := range c.policies {
		if !c.state.Accepted[idOf(p)] || !c.o.Ports.requested(p) || !c.rulePorts(p).openable {
			delete(c.openable, keyOf(p))
			continue
		}
		since := openableSince{now, &p.Spec.PodSelector}
		if last, known := c.openable[keyOf(p)]; known && equality.Semantic.DeepEqual(last.selector, since.selector) {
			since.Time = last.Time
		}
		c.openable[keyOf(p)] = since // not last: it would keep an old object
	}
	for _, n := range objects {
		if isCompanion(n) && opensPorts(n) {
			r.open[nameOf(n)] = metav1.GetControllerOf(n).UID
		}
	}
	return r
}

// rulePorts returns the ports of a policy, computed once for each generation.
func (c *Controller) rulePorts(p *v1alpha1.FQDNNetworkPolicy) rulePorts {
	r, known := c.ports[keyOf(p)]
	if !known || r.generation != p.Generation || p.Generation == 0 {
		r = rulePorts{generation: p.Generation, openable: openable(p)}
		if r.openable {
			r.ports = compile.NewTargetPorts(p, c.services.Domain())
		}
		c.ports[keyOf(p)] = r
	}
	return r
}

// portsOf returns the ports that a companion of a policy opens now, beside the endpoint.
func (r *round) portsOf(p *v1alpha1.FQDNNetworkPolicy, n *networkingv1.NetworkPolicy) (ports compile.PodPorts) {
	since, may := r.openable[keyOf(p)]
	if !may {
		return ports
	}
	if left := OpenAfter - r.now.Sub(since.Time); left > 0 && r.open[nameOf(n)] != p.UID {
		if r.next == 0 || left < r.next {
			r.next = left
		}
		return ports
	}
	id := idOf(p)
	if _, bypassed := r.state.Bypassed[id]; bypassed {
		r.held[id] = true
		return ports
	}
	ports, r.cut[id] = r.rulePorts(p).ports.Bring(r.services)
	return ports
}
