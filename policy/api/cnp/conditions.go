package cnp

import (
	"fmt"

	"github.com/namegate/namegate/policy"
)

// The types of the conditions. Other implementations write theirs beside them.
const (
	ConditionAccepted = "namegate.io/Accepted"
	ConditionEnforced = "namegate.io/Enforced"
)

// The reasons of ConditionEnforced, False, beside policy.ReasonPartiallyInvalid.
const (
	// ReasonNotAccepted: the policy selects no pod.
	ReasonNotAccepted = "NotAccepted"
	// ReasonIngressNotEnforced: the policy has rules for ingress.
	ReasonIngressNotEnforced = "IngressNotEnforced"
)

// Enforced tells whether every rule of a policy is enforced, and if not what is not, as its
// condition says it. The problems are the policy's own, and those that a compiler found.
func (r *Policy) Enforced(problems []policy.Problem) (all bool, reason, message string) {
	accepted, reason, message := policy.Acceptance(problems)
	switch {
	case !accepted:
		return false, ReasonNotAccepted, "the policy selects no pod until it is fixed; the condition " + ConditionAccepted + " says how"
	case r.Ingress > 0 && len(problems) == 0:
		return false, ReasonIngressNotEnforced, "spec.ingress: " + r.IngressText()
	case r.Ingress > 0:
		return false, ReasonIngressNotEnforced, "spec.ingress: " + r.IngressText() + "\n" + message
	case len(problems) > 0:
		return false, reason, message
	}
	return true, "", ""
}

// IngressText says that the rules for ingress, of which there are some, are not enforced.
func (r *Policy) IngressText() string {
	rules := "1 rule is"
	if r.Ingress > 1 {
		rules = fmt.Sprintf("%d rules are", r.Ingress)
	}
	return rules + " not enforced: Namegate enforces egress alone; write NetworkPolicies for ingress"
}
