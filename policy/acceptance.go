package policy

import (
	"fmt"
	"slices"
	"strings"
)

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
		if p.invalidates() {
			accepted, reason = false, p.Reason
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

// MaxProblems bounds the problems that one object has by name: it has room for thousands of mistakes.
const MaxProblems = 64

// AddProblem appends a problem of an object. Beyond MaxProblems one problem says that there are more.
func AddProblem(list []Problem, object, reason, path, format string, args ...any) []Problem {
	if len(list) > MaxProblems {
		return list
	}
	if len(list) == MaxProblems {
		format, args = "more parts cannot work; fix the others first", nil
	}
	return append(list, Problem{Object: object, Reason: reason, Path: path, Message: fmt.Sprintf(format, args...)})
}

// invalidates tells whether a policy with the problem selects nothing.
func (p *Problem) invalidates() bool {
	return p.Reason == ReasonInvalid || p.Reason == ReasonNotEnabled
}

// Invalidate tells whether a policy with these problems selects nothing. Each problem of that
// kind then names the rules in force that deny or pass: what they close is open.
func Invalidate(problems []Problem, rules ...*Rule) (invalid bool) {
	const most = 8
	var closing []string
	for _, r := range rules {
		if text := fmt.Sprintf("%s (%v)", r.Path, r.Action); r.Action != Accept && !r.Audit && !slices.Contains(closing, text) {
			closing = append(closing, text)
		}
	}
	open := strings.Join(closing[:min(len(closing), most)], ", ")
	if n := len(closing) - most; n > 0 {
		open += fmt.Sprintf(" and %d more", n)
	}
	for i := range problems {
		if p := &problems[i]; p.invalidates() {
			invalid, p.Opens = true, open != ""
			if p.Opens {
				p.Message += ", which leaves open what these rules close: " + open
			}
		}
	}
	return invalid
}
