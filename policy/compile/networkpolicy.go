package compile

import (
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/peers"
)

// netPolicy is one NetworkPolicy as the compiler keeps it. It is immutable but for
// the object that it was last read from.
type netPolicy struct {
	id       string // "namespace/name"
	from     *networkingv1.NetworkPolicy
	egress   bool            // it says something of the egress of the pods that it selects
	selector *peers.Selector // nil: it selects no pod
	rules    []netRule
	problems []policy.Problem
	more     int    // problems beyond maxNetProblems
	serial   uint64 // of the parse in its compiler
	seen     uint64 // the compile that saw it last
}

// maxNetProblems bounds the problems that one object has by name: it has room for a
// hundred thousand mistakes.
const maxNetProblems = 64

// netRule is what one egress rule allows to one kind of peers.
type netRule struct {
	policy.PeerRule
	spec *peers.Spec
	cost int // rules of the kernel, of each family
}

// readNetPolicy reads a NetworkPolicy. What cannot work in it opens nothing, and is
// one of its problems.
func readNetPolicy(from *networkingv1.NetworkPolicy, known paths) *netPolicy {
	n := &netPolicy{id: from.Namespace + "/" + from.Name, from: from}
	if mark := companionMark(from); mark != "" || companionOwned(from) {
		n.reportCompanion(mark)
		return n
	}
	if n.egress = n.limitsEgress(); !n.egress {
		return n
	}
	var err error
	if n.selector, err = peers.NewSelector(&from.Spec.PodSelector); err != nil {
		n.report(policy.ReasonInvalid, "spec.podSelector", "%v; the NetworkPolicy selects no pod until this is mended", err)
		return n
	}
	for i := range from.Spec.Egress {
		n.rule(known.rule(i), &from.Spec.Egress[i])
	}
	if n.more > 0 {
		n.problems = append(n.problems, policy.Problem{
			Object: "networkpolicy " + n.id, Reason: policy.ReasonPartiallyInvalid, Path: "spec.egress",
			Message: fmt.Sprintf("%d more parts of the NetworkPolicy cannot work as they are written; mend those that are named first", n.more),
		})
	}
	return n
}

func (n *netPolicy) report(reason, path, format string, args ...any) {
	if len(n.problems) >= maxNetProblems {
		n.more++
		return
	}
	n.problems = append(n.problems, policy.Problem{
		Object: "networkpolicy " + n.id, Reason: reason, Path: path, Message: fmt.Sprintf(format, args...),
	})
}

func (n *netPolicy) partly(path, format string, args ...any) {
	n.report(policy.ReasonPartiallyInvalid, path, format, args...)
}

func (n *netPolicy) reportCompanion(mark string) {
	if mark == "" || companionOwned(n.from) {
		return
	}
	what := "its name begins with " + CompanionPrefix + "; give it another name"
	if mark == "metadata.labels" {
		what = "it has the label " + companionLabel + "=" + companionLabelValue + "; take the label away"
	}
	n.report(policy.ReasonInvalid, mark, "it is taken for one that Namegate wrote, and what it allows counts for no pod: %s", what)
}

// limitsEgress tells whether the policy is one for egress. An API server fills the
// types in; a file may leave them out, and then a rule for egress tells.
func (n *netPolicy) limitsEgress() bool {
	spec := &n.from.Spec
	if len(spec.PolicyTypes) == 0 {
		return len(spec.Egress) > 0
	}
	for i, t := range spec.PolicyTypes {
		if t != networkingv1.PolicyTypeEgress && t != networkingv1.PolicyTypeIngress {
			n.partly(fmt.Sprintf("spec.policyTypes[%d]", i), "%q is unknown, and counts for nothing; write Ingress or Egress", t)
		}
	}
	return slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeEgress)
}

// rule adds what one rule opens: to each kind of its peers those of its ports that
// are numbers, and the ports that have names wherever it leads.
func (n *netPolicy) rule(path string, rule *networkingv1.NetworkPolicyEgressRule) {
	to := n.destinations(path+".to", rule.To)
	ports, names := n.ports(path+".ports", rule.Ports)
	add := func(spec *peers.Spec, ports policy.PortSet, cost int) {
		n.rules = append(n.rules, netRule{policy.PeerRule{Peer: spec.Peer, Ports: ports, Policy: n.id, Path: path}, spec, cost})
	}
	if cost := ports.KernelRules(); cost > 0 {
		for _, spec := range to.ByNumber() {
			add(spec, ports, cost)
		}
	}
	if spec := to.ByName(names); spec != nil {
		add(spec, policy.AnyPort, policy.AnyPort.KernelRules())
	}
}
