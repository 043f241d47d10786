package companion

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy/compile"
	"github.com/namegate/namegate/status/event"
)

// The reasons of the events of policies.
const (
	// ReasonInvalid: the annotation has a value that does not exist.
	ReasonInvalid = "CompanionInvalid"
	// ReasonIgnored: the annotation asks for ports where no companion opens any.
	ReasonIgnored = "CompanionIgnored"
	// ReasonHeld: the companions open the endpoint alone, since connections of the policy's
	// pods bypass the verdict on a node.
	ReasonHeld = "CompanionHeld"
	// ReasonTooManyPorts: the policy's names match Services that lead to more ports than
	// its companions open.
	ReasonTooManyPorts = "TooManyPorts"
	// ReasonTooMany: the policy goes without some companions.
	ReasonTooMany = "TooManyCompanions"
)

// action is what all these events are about.
const action = "OpenEndpoint"

// announce emits the events of policies whose companions open less than they could.
func (c *Controller) announce(policies map[string]*v1alpha1.FQDNNetworkPolicy, r *round) {
	c.dedup.Begin()
	for _, name := range sortedKeys(policies) {
		p, id := policies[name], idOf(policies[name])
		if p.DeletionTimestamp != nil {
			continue
		}
		reason, message := c.o.Ports.objection(p)
		cause := message
		if b := r.state.Bypassed[id]; r.held[id] {
			reason, cause = ReasonHeld, b.Node+"/"+b.Reason
			message = fmt.Sprintf("companions of the policy open the endpoint alone, since the policy does not hold on the node %s: %s", b.Node, b.Message)
		} else if n := r.cut[id]; n > 0 {
			reason, cause, message = ReasonTooManyPorts, "", fmt.Sprintf("the Services that the policy's names match lead to %d ports more than the %d "+
				"for which its companions have room: some of these Services cannot be reached; write narrower names, or allow their pods in a NetworkPolicy", n, compile.MaxTargetPorts)
		}
		if reason != "" && c.dedup.Due(r.now, event.Key{Kind: kindOf(p), Object: id + "/" + string(p.UID) + "/" + cause, Reason: reason}) {
			c.emit(p, reason, message)
		}
	}
	c.dedup.End(r.now)
}

// announceCrowded emits an event of each policy that newly goes without some companions.
func (c *Controller) announceCrowded(policies []*v1alpha1.FQDNNetworkPolicy) {
	before := c.crowded
	c.crowded = map[types.UID]bool{}
	for _, p := range policies {
		c.crowded[p.UID] = true
		if !before[p.UID] {
			c.emit(p, ReasonTooMany, fmt.Sprintf(
				"the namespace needs more than %d companions, so some pods get none: allow UDP and TCP 53 to the endpoint in its NetworkPolicies, or use fewer selectors", maxCompanions))
		}
	}
}

func (c *Controller) emit(p *v1alpha1.FQDNNetworkPolicy, reason, message string) {
	of := event.Policy(p)
	if p.Kind == v1alpha1.ClusterKind {
		of = event.ClusterPolicy(&v1alpha1.ClusterFQDNNetworkPolicy{ObjectMeta: p.ObjectMeta})
	}
	c.o.Recorder.Eventf(of, nil, corev1.EventTypeWarning, reason, action, "%s", event.Clip(message, event.MaxNote))
}
