package convert

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
)

// nodeSubject is what policies for nodes are about.
type nodeSubject struct {
	selector   *metav1.LabelSelector
	interfaces []v1alpha1.Interface
}

// ofNodes returns a policy for nodes.
func (o *object) ofNodes(name string, of nodeSubject, traffic v1alpha1.Traffic, priority int32, ingress, egress []rule) *v1alpha1.NodeNetworkPolicy {
	p := &v1alpha1.NodeNetworkPolicy{TypeMeta: typeMeta(v1alpha1.NodeKind), ObjectMeta: o.meta(name, "")}
	p.Spec.NodeSelector, p.Spec.Interfaces, p.Spec.Traffic, p.Spec.Priority = of.selector, of.interfaces, traffic, &priority
	if !o.r.safeguard {
		o.r.safeguard = true
		o.note(Noted, "", "policies for nodes that are converted have no spec.safeguard, which undoes a policy that locks its node out: add it, or write enforcement: Audit first")
	}
	for _, r := range ingress {
		o.failsafes(traffic, r.action)
		for _, c := range r.cut() {
			p.Spec.Ingress = append(p.Spec.Ingress, v1alpha1.NodeIngressRule{Name: c.name, Action: v1alpha1.NodeAction(c.action), NodePeers: c.peers(), Ports: c.ports})
		}
	}
	for _, r := range egress {
		o.failsafes(traffic, r.action)
		if r.action == v1alpha1.ActionDeny && len(r.matches) > 0 {
			p.Spec.DNS.Denied = v1alpha1.UnmatchedResolve // no other system denies the query
		}
		for _, c := range r.cut() {
			p.Spec.Egress = append(p.Spec.Egress, v1alpha1.NodeEgressRule{Name: c.name, Action: v1alpha1.NodeAction(c.action), Matches: c.matches, NodePeers: c.peers(), Ports: c.ports})
		}
	}
	return p
}

// peers returns the peers of a rule that cut returned.
func (r *rule) peers() v1alpha1.NodePeers {
	p := v1alpha1.NodePeers{Networks: r.networks}
	if len(r.nodes) > 0 {
		p.Nodes = r.nodes[0]
	}
	if len(r.pods) > 0 {
		p.Pods = r.pods[0]
	}
	return p
}

// failsafes notes once that a rule for nodes with Deny leaves the failsafes open.
func (o *object) failsafes(traffic v1alpha1.Traffic, action v1alpha1.Action) {
	if action == v1alpha1.ActionDeny && traffic != v1alpha1.TrafficForwarded && !o.r.failsafes {
		o.r.failsafes = true
		o.note(Noted, "", "the failsafes of nodes, such as TCP 22 from every address, stay open: no policy for nodes denies them; namegate status shows the table, and failsafe of the Corefile replaces it")
	}
}

// noPass makes an Accept of a Pass: policies for nodes are one list.
func (o *object) noPass(r *rule, path string) {
	if r.action == v1alpha1.ActionPass {
		r.action = v1alpha1.ActionAccept
		o.note(Wider, path+".action", "Pass becomes Accept: policies for nodes have no later tier, which could deny the connection")
	}
}
