package traffic

import (
	"slices"

	"github.com/namegate/namegate/audit"
)

// VerdictOf returns the verdict of a line's edge; "" for a line that is of no edge: another line
// counts the same connections, or they are connections to the pod.
func VerdictOf(l *audit.Line) string {
	if l.Kind == audit.KindFlow {
		if l.Verdict == audit.WouldAllow.String() || l.Source != nil {
			return "" // of the former, a line with the verdict denied counts them too
		}
		return l.Verdict // the words are the same
	}
	switch l.Verdict {
	case audit.Allowed.String(), audit.Renewed.String():
		if l.Would != "" && l.Would != audit.Allowed.String() {
			return WouldDeny
		}
		return Allowed
	case audit.Unmatched.String():
		return Unmatched
	case audit.Refused.String():
		return Refused
	case audit.Failed.String():
		return Failed
	}
	return Denied // of the name, or of all its addresses by the guard
}

// WorkloadOf names the workload of a line as Edge.Workload does.
func WorkloadOf(l *audit.Line) string {
	switch {
	case l.Host != nil:
		return "Node/" + l.Node
	case l.Pod.Workload == "":
		return "Pod/" + l.Pod.Name
	}
	return l.Pod.Workload
}

// edgeOf returns the edge of a line without its counts; Last is the line's last time. Not every
// line is of one.
func edgeOf(l *audit.Line) (e Edge, is bool) {
	e = Edge{Workload: WorkloadOf(l), Namespace: l.Pod.Namespace, Verdict: VerdictOf(l), Last: l.Time}
	if e.Verdict == "" {
		return e, false
	}
	if l.Host != nil {
		e.Node = l.Node
	}
	if l.Last.After(e.Last) {
		e.Last = l.Last
	}
	add := func(policy string) {
		if policy != "" && !slices.Contains(e.Policies, policy) {
			e.Policies = append(e.Policies, policy)
		}
	}
	add(l.Policy)
	if l.Kind == audit.KindFlow {
		e.Name, e.Reason = l.Destination.Address, string(l.Reason)
		if len(l.Names) > 0 {
			e.Name = l.Names[0].Name
		}
		for i := range l.Names {
			if m := l.Names[i].Match; m != nil {
				add(m.Policy)
			}
		}
	} else {
		e.Name, e.Reason = l.Question.Name, l.Error
		if l.Limit != "" {
			e.Reason = l.Limit
		}
		for i := range l.Matches {
			add(l.Matches[i].Policy)
		}
	}
	if len(e.Policies) == 0 {
		e.Policies = slices.Clone(l.Policies)
	}
	return e, true
}
