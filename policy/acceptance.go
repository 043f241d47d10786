package policy

import "strings"

// ReasonAccepted is the reason of the condition of a policy without problems.
const ReasonAccepted = "Accepted"

// ConditionAccepted is the type of the condition that Acceptance describes.
const ConditionAccepted = "Accepted"

// Acceptance returns the condition Accepted of a policy with these problems, as Validate
// returns them: whether it is true, its reason and its message. The message names at most
// eight problems, so that a status stays small.
func Acceptance(problems []Problem) (accepted bool, reason, message string) {
	const most = 8
	if len(problems) == 0 {
		return true, ReasonAccepted, "every part of the policy works"
	}
	accepted, reason = true, ReasonPartiallyInvalid
	var texts []string
	for i, p := range problems {
		if p.Reason == ReasonInvalid {
			accepted, reason = false, ReasonInvalid
		}
		switch {
		case i < most && p.Path == "":
			texts = append(texts, p.Message)
		case i < most:
			texts = append(texts, p.Path+": "+p.Message)
		case i == most:
			texts = append(texts, "and more")
		}
	}
	return accepted, reason, strings.Join(texts, "\n")
}
