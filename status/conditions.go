package status

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/crds/v1alpha1"
	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/api/cnp"
	"github.com/namegate/namegate/policy/api/nnp"
)

// The types of the conditions, beside policy.ConditionAccepted.
const (
	// ConditionEnforced is true where no node knows a selected pod for which the
	// policy does not hold.
	ConditionEnforced = "Enforced"
	// ConditionDNSBlocked is true where some selected pod's queries do not reach
	// the agent of its node.
	ConditionDNSBlocked = "DNSBlocked"
)

// The reasons of conditions, except those of findings and of package policy.
const (
	// ReasonNoBlindSpot: of Enforced, True.
	ReasonNoBlindSpot = "NoBlindSpot"
	// ReasonBesideNetworkPolicies: of Enforced, True: the policy accepts connections of pods whose
	// egress NetworkPolicies limit: another engine that enforces these may deny them. Findings have
	// it too, without events and metrics: nothing is wrong.
	ReasonBesideNetworkPolicies = "BesideNetworkPolicies"
	// ReasonAudit: of Enforced, False: the policy is not meant to be.
	ReasonAudit = "Audit"
	// ReasonUnconfirmed: of Enforced, True: a safeguard ends the enforcement of this generation, unless
	// it is confirmed.
	ReasonUnconfirmed = "Unconfirmed"
	// ReasonNotAccepted: of Enforced, False: the policy selects no pod.
	ReasonNotAccepted = cnp.ReasonNotAccepted
	// ReasonReachable: of DNSBlocked, False.
	ReasonReachable = "Reachable"
)

// maxConditionBytes bounds a message; the schema allows 32 KiB.
const maxConditionBytes = 8 << 10

// conditionsOf returns the wanted conditions of a policy, without times. beside is what the
// condition says of another engine, "" for nothing.
func conditionsOf(p *v1alpha1.FQDNNetworkPolicy, problems []policy.Problem, entries []entry, beside string) []metav1.Condition {
	ok, reason, message := policy.Acceptance(problems)
	enforced := enforcedOf(p.Spec.Enforcement, ok, entries)
	if enforced.Reason == ReasonNoBlindSpot && beside != "" {
		enforced = condition(ConditionEnforced, true, ReasonBesideNetworkPolicies, beside)
	}
	return observed([]metav1.Condition{condition(policy.ConditionAccepted, ok, reason, message), enforced, dnsBlockedOf(entries)}, p.Generation)
}

// clusterConditionsOf returns the wanted conditions of a cluster policy of ours, without times.
func clusterConditionsOf(e v1alpha1.Enforcement, generation int64, problems []policy.Problem, entries []entry) []metav1.Condition {
	ok, reason, message := policy.Acceptance(problems)
	return observed([]metav1.Condition{condition(policy.ConditionAccepted, ok, reason, message), enforcedOf(e, ok, entries)}, generation)
}

// nodeConditionsOf returns the wanted conditions of a policy for nodes, without times.
func nodeConditionsOf(p *v1alpha1.NodeNetworkPolicy, problems []policy.Problem, entries []entry) []metav1.Condition {
	wanted := clusterConditionsOf(p.Spec.Enforcement, p.Generation, problems, entries)
	if within, _ := nnp.ConfirmWithin(&p.Spec); within > 0 && wanted[1].Status == metav1.ConditionTrue && !nnp.Confirmed(p) {
		wanted[1] = condition(ConditionEnforced, true, ReasonUnconfirmed, fmt.Sprintf("generation %d is not confirmed: each node only audits it %v after it came into force there, or after a minute without the API server; "+
			"if the nodes work, run %s", p.Generation, within, nnp.ConfirmCommand(p.Name, p.Generation)))
	}
	return observed(wanted, p.Generation)
}

// standardConditionsOf returns the wanted conditions of a ClusterNetworkPolicy, without times.
func standardConditionsOf(generation int64, problems []policy.Problem, entries []entry) []metav1.Condition {
	ok, reason, message := policy.Acceptance(problems)
	enforced := enforcedOf(v1alpha1.EnforcementEnforce, ok, entries)
	enforced.Type = cnp.ConditionEnforced
	if all, reason, message := cnp.Enforced(problems); !all {
		enforced = condition(cnp.ConditionEnforced, false, reason, message)
	}
	return observed([]metav1.Condition{condition(cnp.ConditionAccepted, ok, reason, message), enforced}, generation)
}

// observed returns conditions as those of a generation.
func observed(conditions []metav1.Condition, generation int64) []metav1.Condition {
	for i := range conditions {
		conditions[i].ObservedGeneration = generation
	}
	return conditions
}

func condition(kind string, status bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: clip(message, maxConditionBytes)}
	if status {
		c.Status = metav1.ConditionTrue
	}
	return c
}

func enforcedOf(e v1alpha1.Enforcement, accepted bool, entries []entry) metav1.Condition {
	if !accepted {
		return condition(ConditionEnforced, false, ReasonNotAccepted, "the policy selects nothing until it is fixed; the condition Accepted says how")
	}
	var texts []string
	var worst string
	for _, reason := range blindSpots {
		if text := tellEntries(entries, reason); text != "" {
			texts = append(texts, text)
			if worst == "" {
				worst = reason
			}
		}
	}
	switch {
	case worst != "":
		return condition(ConditionEnforced, false, worst, strings.Join(texts, "\n"))
	case e == v1alpha1.EnforcementAudit:
		return condition(ConditionEnforced, false, ReasonAudit, "the policy decides and logs and drops nothing; write enforcement: Enforce to enforce it")
	}
	for _, reason := range []string{NotRelayed, Offloaded, ReasonBesideNetworkPolicies} {
		if text := tellEntries(entries, reason); text != "" {
			return condition(ConditionEnforced, true, reason, text)
		}
	}
	return condition(ConditionEnforced, true, ReasonNoBlindSpot, "no node knows a selected pod, or is a selected node, for which the policy does not hold")
}

func dnsBlockedOf(entries []entry) metav1.Condition {
	if text := tellEntries(entries, DNSBlocked); text != "" {
		return condition(ConditionDNSBlocked, true, DNSBlocked, text)
	}
	for _, reason := range []string{SocketLB, ResolverLoop, SocketBound} {
		if text := tellEntries(entries, reason); text != "" {
			return condition(ConditionDNSBlocked, true, reason, text)
		}
	}
	return condition(ConditionDNSBlocked, false, ReasonReachable, "no node knows a selected pod whose queries do not reach its agent")
}

// tellEntries tells all nodes' entries of one reason in one text, "" if there are none.
func tellEntries(entries []entry, reason string) string {
	const most = 8
	var pods []string
	var count int
	var message string
	for _, e := range entries {
		if e.Reason != reason {
			continue
		}
		if e.Message == "" {
			e.Message = reason
		}
		pods = append(pods, e.Pods...)
		count += e.Count
		if message == "" || e.Message < message { // the same one, whichever node comes first
			message = e.Message
		}
	}
	if message == "" || count <= 1 {
		return message
	}
	slices.Sort(pods)
	named := pods[:min(len(pods), most)]
	kind, list := "pods", strings.Join(named, ", ")
	if ofNodes(reason) {
		kind, list = "nodes", strings.ReplaceAll(" "+list, " node ", " ")[1:]
	}
	text := fmt.Sprintf("%d %s: %s", count, kind, list)
	if count > len(named) {
		text += fmt.Sprintf(" and %d more", count-len(named))
	}
	return text + "; of one of them: " + message
}
