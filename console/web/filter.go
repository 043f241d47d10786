package web

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/namegate/namegate/audit"
	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/web/traffic"
)

// filter is which lines are asked for; "" is all.
type filter struct {
	console.AuditFilter
	verdicts               []string // of the line, or of its edge
	workload, name, policy string   // parts of it
}

// filterOf reads the filter of a query.
func filterOf(q url.Values) (f filter, err error) {
	f.AuditFilter, err = console.ReadFilter(q)
	f.verdicts, f.Verdicts, f.Namespace = f.Verdicts, nil, q.Get("namespace")
	f.workload, f.name, f.policy = q.Get("workload"), strings.ToLower(q.Get("name")), q.Get("policy")
	return f, err
}

// wants tells whether a line is asked for.
func (f *filter) wants(l *audit.Line) bool {
	return f.Wants(l) && (len(f.verdicts) == 0 || slices.Contains(f.verdicts, l.Verdict) || slices.Contains(f.verdicts, traffic.VerdictOf(l))) &&
		(f.workload == "" || strings.Contains(traffic.WorkloadOf(l), f.workload) || strings.Contains(l.Pod.Name, f.workload)) &&
		(f.name == "" || hasName(l, f.name)) && (f.policy == "" || hasPolicy(l, f.policy))
}

// hasName tells whether a part is in a name of a line, or in a flow's source or destination.
func hasName(l *audit.Line, part string) bool {
	if l.Kind == audit.KindDNS {
		return strings.Contains(l.Question.Name, part) || slices.ContainsFunc(l.Chain, func(n string) bool { return strings.Contains(n, part) })
	}
	if s := l.Source; s != nil && (strings.Contains(s.Address, part) || strings.Contains(s.Pod, part)) {
		return true
	}
	return strings.Contains(l.Destination.Address, part) ||
		slices.ContainsFunc(l.Names, func(n audit.LineName) bool { return strings.Contains(n.Name, part) })
}

// hasPolicy tells whether a part is in the name of a policy, a rule or a match of a line.
func hasPolicy(l *audit.Line, part string) bool {
	match := func(m *audit.LineMatch) bool {
		return m != nil && (strings.Contains(m.Policy, part) || strings.Contains(m.Match, part) || strings.Contains(m.Path, part))
	}
	return strings.Contains(l.Policy, part) || strings.Contains(l.Rule, part) ||
		slices.ContainsFunc(l.Policies, func(p string) bool { return strings.Contains(p, part) }) ||
		slices.ContainsFunc(l.Matches, func(m audit.LineMatch) bool { return match(&m) }) ||
		slices.ContainsFunc(l.Names, func(n audit.LineName) bool { return match(n.Match) })
}

// number reads a number of a query, the default where there is none.
func number(q url.Values, key string, otherwise, least, most uint64) (uint64, error) {
	text := q.Get(key)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, console.Refuse(http.StatusBadRequest, "%s=%q; write a number from %d to %d", key, text, least, most)
	}
	return n, nil
}
