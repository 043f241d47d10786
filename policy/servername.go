package policy

// Verdict is the answer of an evaluation about a TCP connection, of which the agent may see the server name.
type Verdict uint8

// The verdicts.
const (
	DenyFlow  Verdict = iota // deny it
	AllowFlow                // whatever its server name is
	CheckFlow                // where its server name is a name for which the pod holds a grant by such a rule
)

// Judge is Evaluate with its verdict.
func Judge(v *View, in *Snapshot, f *Flow) (Verdict, *Rule) {
	allowed, by := Evaluate(v, in, f)
	return VerdictOf(allowed, by), by
}

// Kept is Keeps with its verdict: of a connection that the agent checked, CheckFlow is that it stays if its name does.
func Kept(v *View, in *Snapshot, f *Flow) (Verdict, *Rule) {
	verdict, by := Judge(v, in, f)
	if verdict == DenyFlow {
		open := *f
		open.open = true
		verdict, by = Judge(v, in, &open)
	}
	return verdict, by
}

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
