package netpol

import (
	"fmt"
	"reflect"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/ordered"
	"github.com/namegate/namegate/policy/peers"
)

// reader reads one object.
type reader struct {
	*ordered.Policy
	from *networkingv1.NetworkPolicy
}

// Read reads a NetworkPolicy. A part that cannot work opens nothing and is one of its
// problems.
func Read(from *networkingv1.NetworkPolicy) *ordered.Policy {
	id := from.Namespace + "/" + from.Name
	r := &reader{&ordered.Policy{ID: id, Object: "networkpolicy " + id}, from}
	if Ignored(from) || !r.limitsEgress() {
		return r.Policy
	}
	var err error
	if r.Pods, err = peers.NewSelector(&from.Spec.PodSelector); err != nil {
		r.Problems = policy.AddProblem(r.Problems, r.Object, policy.ReasonInvalid, "spec.podSelector", "%v; the NetworkPolicy selects no pod until this is fixed", err)
		return r.Policy
	}
	for i := range from.Spec.Egress {
		r.rule(fmt.Sprintf("spec.egress[%d]", i), &from.Spec.Egress[i])
	}
	return r.Policy
}

// Same tells whether two objects of one name say the same of egress.
func Same(a, b *networkingv1.NetworkPolicy) bool {
	x, y := a.Spec, b.Spec
	x.Ingress, y.Ingress = nil, nil
	return Ignored(a) == Ignored(b) && reflect.DeepEqual(x, y)
}

// limitsEgress tells whether the policy is one for egress. An API server fills the
// types in; a file may leave them out, and then a rule for egress tells.
func (r *reader) limitsEgress() bool {
	spec := &r.from.Spec
	if len(spec.PolicyTypes) == 0 {
		return len(spec.Egress) > 0
	}
	for i, t := range spec.PolicyTypes {
		if t != networkingv1.PolicyTypeEgress && t != networkingv1.PolicyTypeIngress {
			r.Partly(fmt.Sprintf("spec.policyTypes[%d]", i), "%q is unknown, and counts for nothing; write Ingress or Egress", t)
		}
	}
	return slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeEgress)
}

// rule adds the openings of one rule: for each kind of peers its numeric ports, and the
// named ports for all destinations.
func (r *reader) rule(path string, rule *networkingv1.NetworkPolicyEgressRule) {
	to := r.destinations(path+".to", rule.To)
	ports, names := r.ports(path+".ports", rule.Ports)
	add := func(spec *peers.Spec, ports policy.PortSet, cost int) {
		r.Rules = append(r.Rules, ordered.Rule{Rule: &policy.Rule{Peer: spec.Peer, Ports: ports, Policy: r.ID, Path: path}, Spec: spec, Cost: cost})
	}
	if cost := Cost(ports); cost > 0 {
		for _, spec := range to.ByNumber() {
			add(spec, ports, cost)
		}
	}
	if spec := to.ByName(names); spec != nil {
		add(spec, policy.AnyPort, 1)
	}
}
