package cnp

import "github.com/namegate/namegate/policy"

// The types of the conditions. Other implementations write theirs beside them.
const (
	ConditionAccepted = "namegate.io/Accepted"
	ConditionEnforced = "namegate.io/Enforced"
)

// ReasonNotAccepted is a reason of ConditionEnforced, False, beside policy.ReasonPartiallyInvalid: the policy
// selects no pod.
const ReasonNotAccepted = "NotAccepted"

// Enforced tells whether every rule of a policy is enforced, and if not what is not, as its
// condition says it. The problems are the policy's own, and those that a compiler found.
func Enforced(problems []policy.Problem) (all bool, reason, message string) {
	accepted, reason, message := policy.Acceptance(problems)
	switch {
	case !accepted:
		return false, ReasonNotAccepted, "the policy selects no pod until it is fixed; the condition " + ConditionAccepted + " says how"
	case len(problems) > 0:
		return false, reason, message
	}
	return true, "", ""
}
