package netpol

import (
	"fmt"
	"reflect"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/peers"
)

// Policy is one NetworkPolicy as it was read. It is immutable.
type Policy struct {
	ID       string          // "namespace/name"
	Selector *peers.Selector // of the pods whose egress it limits; nil: of none
	Rules    []Rule
	Problems []policy.Problem
}

// Rule is what one egress rule allows to one kind of peers.
type Rule struct {
	*policy.Rule
	Spec *peers.Spec
	Cost int // of its ports
}

// reader reads one object.
type reader struct {
	*Policy
	from *networkingv1.NetworkPolicy
}

// Read reads a NetworkPolicy. A part that cannot work opens nothing and is one of its
// problems.
func Read(from *networkingv1.NetworkPolicy) *Policy {
	r := &reader{Policy: &Policy{ID: from.Namespace + "/" + from.Name}, from: from}
	if Ignored(from) || !r.limitsEgress() {
		return r.Policy
	}
	var err error
	if r.Selector, err = peers.NewSelector(&from.Spec.PodSelector); err != nil {
		r.report(policy.ReasonInvalid, "spec.podSelector", "%v; the NetworkPolicy selects no pod until this is fixed", err)
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

func (r *reader) report(reason, path, format string, args ...any) {
	r.Problems = policy.AddProblem(r.Problems, "networkpolicy "+r.ID, reason, path, format, args...)
}

func (r *reader) partly(path, format string, args ...any) {
	r.report(policy.ReasonPartiallyInvalid, path, format, args...)
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
			r.partly(fmt.Sprintf("spec.policyTypes[%d]", i), "%q is unknown, and counts for nothing; write Ingress or Egress", t)
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
		r.Rules = append(r.Rules, Rule{&policy.Rule{Peer: spec.Peer, Ports: ports, Policy: r.ID, Path: path}, spec, cost})
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
