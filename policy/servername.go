package policy

// Verdict is the answer of an evaluation about a TCP connection, of which the agent may see the server name.
type Verdict uint8

// The verdicts.
const (
	DenyFlow  Verdict = iota // deny it
	AllowFlow                // whatever its server name is
	CheckFlow                // where its server name is a name for which the pod holds a grant by such a rule
)

// VerdictOf returns the verdict of what Evaluate returns.
func VerdictOf(allowed bool, by *Rule) Verdict {
	switch {
	case allowed:
		return AllowFlow
	case by != nil && by.ServerName:
		return CheckFlow
	}
	return DenyFlow
}

// Egress is the decision about a TCP connection of a pod that is led to the agent.
type Egress struct {
	Pod     PodRef // zero: no pod of this node has the source address
	Verdict Verdict
	By      *Rule // of the decision; nil for a default
	View    *View // of Pod, nil for none
}
