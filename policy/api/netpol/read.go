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
func Read(from *networkingv1.NetworkPolicy) *ordered.Policy { return read(from, true, true) }

// ReadOne reads what a NetworkPolicy says of one direction: it selects nothing if it does not isolate for
// that. A problem of both directions is one of egress, if the policy isolates for egress.
func ReadOne(from *networkingv1.NetworkPolicy, ingress bool) *ordered.Policy {
	return read(from, !ingress, ingress)
}

func read(from *networkingv1.NetworkPolicy, egress, ingress bool) *ordered.Policy {
	id := from.Namespace + "/" + from.Name
	r := &reader{&ordered.Policy{ID: id, Object: "networkpolicy " + id}, from}
	if Ignored(from) {
		return r.Policy
	}
	if egress {
		r.types()
	}
	out, in := isolates(&from.Spec)
	if !(egress && out) && !(ingress && in) {
		return r.Policy
	}
	pods, err := peers.NewSelector(&from.Spec.PodSelector)
	if err != nil {
		if egress || !out {
			r.Problems = policy.AddProblem(r.Problems, r.Object, policy.ReasonInvalid, "spec.podSelector", "%v; the NetworkPolicy selects no pod until this is fixed", err)
		}
		return r.Policy
	}
	r.Pods = pods
	for i := 0; egress && out && i < len(from.Spec.Egress); i++ {
		rule, path := &from.Spec.Egress[i], fmt.Sprintf("spec.egress[%d]", i)
		r.egress(path, r.peers(path, "to", rule.To), rule.Ports)
	}
	for i := 0; ingress && in && i < len(from.Spec.Ingress); i++ {
		rule, path := &from.Spec.Ingress[i], fmt.Sprintf("spec.ingress[%d]", i)
		r.ingress(path, r.peers(path, "from", rule.From), rule.Ports)
	}
	return r.Policy
}

// Same tells whether two objects of one name say the same of a direction.
func Same(a, b *networkingv1.NetworkPolicy, ingress bool) bool {
	x, y := a.Spec, b.Spec
	if ingress {
		x.Egress, y.Egress = nil, nil
	} else {
		x.Ingress, y.Ingress = nil, nil
	}
	return Ignored(a) == Ignored(b) && reflect.DeepEqual(x, y)
}

// isolates returns the directions in which a policy isolates. An API server fills the types in; a file may
// leave them out, and then it is for ingress, and for egress if it has a rule for that.
func isolates(spec *networkingv1.NetworkPolicySpec) (egress, ingress bool) {
	if len(spec.PolicyTypes) == 0 {
		return len(spec.Egress) > 0, true
	}
	return slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeEgress), slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeIngress)
}

// types reports the types that are none.
func (r *reader) types() {
	for i, t := range r.from.Spec.PolicyTypes {
		if t != networkingv1.PolicyTypeEgress && t != networkingv1.PolicyTypeIngress {
			r.Partly(fmt.Sprintf("spec.policyTypes[%d]", i), "%q is unknown, and counts for nothing; write Ingress or Egress", t)
		}
	}
}

// egress adds the openings of a rule: for each kind of peers its numeric ports, and the named ports of
// all of them.
func (r *reader) egress(path string, to *peers.Destinations, written []networkingv1.NetworkPolicyPort) {
	ports, names := r.ports(path+".ports", written)
	if cost := Cost(ports); cost > 0 {
		for _, spec := range to.ByNumber() {
			r.add(policy.Rule{Ports: ports, Path: path}, spec, cost)
		}
	}
	if spec := to.ByName(names); spec != nil {
		r.add(policy.Rule{Ports: policy.AnyPort, Path: path}, spec, 1)
	}
}

// ingress adds the openings of a rule, for each kind of peers. Named ports are the subject's: each costs
// as much as ports that it may lead to.
func (r *reader) ingress(path string, from *peers.Destinations, written []networkingv1.NetworkPolicyPort) {
	ports, names := r.ports(path+".ports", written)
	rule := policy.Rule{Ingress: true, Ports: ports, PortNames: peers.NamedPorts(names), Path: path}
	if cost := Cost(ports) + len(names); cost > 0 {
		for _, spec := range from.ByNumber() {
			r.add(rule, spec, cost)
		}
	}
}

func (r *reader) add(rule policy.Rule, spec *peers.Spec, cost int) {
	rule.Peer, rule.Policy = spec.Peer, r.ID
	r.Rules = append(r.Rules, ordered.Rule{Rule: &rule, Spec: spec, Cost: cost})
}
