package web

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/namegate/namegate/console"
)

// policies answers with the policies of all agents, and the use of their matches.
func (s *server) policies(r *http.Request) (any, error) {
	q, rows := s.scope(), map[string]*console.PolicyRow{}
	failed, err := gather(r.Context(), s.feed, "", console.PoliciesPath, func(first bool) url.Values {
		if first { // every agent knows the policies that select nothing on its node: one tells
			return q
		}
		selecting := maps.Clone(q)
		selecting.Set("selecting", "1")
		return selecting
	}, func(answer *console.PolicyRows) {
		for i := range answer.Policies {
			merge(rows, &answer.Policies[i])
		}
	})
	out := Policies{Policies: []Policy{}, Since: slices.MaxFunc([]time.Time{s.started, s.o.Now().Add(-time.Hour)}, time.Time.Compare), Failed: failed}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		out.Policies = append(out.Policies, s.used(rows[id]))
	}
	slices.SortStableFunc(out.Policies, func(a, b Policy) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out, err
}

// merge adds the row of another agent. A problem is shown once, however many agents have it.
func merge(rows map[string]*console.PolicyRow, row *console.PolicyRow) {
	known := rows[row.ID]
	if known == nil {
		rows[row.ID] = row
		return
	}
	known.Selected += row.Selected
	for _, p := range row.Problems {
		if !slices.Contains(known.Problems, p) {
			known.Problems = append(known.Problems, p)
		}
	}
}

// used returns a policy with the use of its matches. The caller holds the lock of the store.
func (s *server) used(row *console.PolicyRow) Policy {
	p := Policy{row, []string{}}
	row.Problems, row.Matches = append([]console.PolicyProblem{}, row.Problems...), append([]console.PolicyMatch{}, row.Matches...)
	for i := range row.Matches {
		m := &row.Matches[i]
		if m.Hits, m.Last = s.store.traffic.Hits(row.ID, m.Path); m.Hits == 0 {
			p.Unused = append(p.Unused, m.Path)
		}
	}
	return p
}
