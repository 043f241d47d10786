package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Close returns s with rules closed for pods: each denies every destination on its ports, in its
// place, since its addresses cannot be told apart from others. why has the reason for each, as "the
// pod has …". The rules are of cluster policies and deny or pass.
func (s *Snapshot) Close(why map[PodRef]map[RuleID]string) *Snapshot {
	out := *s
	out.Views, out.Problems = nil, slices.Clone(s.Problems)
	for _, v := range s.Views {
		if of := why[v.Pod.PodRef]; of != nil {
			v = v.close(of, func(r *Rule) {
				out.Problems = append(out.Problems, Problem{
					Object: clusterObject(r), Reason: ReasonNoRoom, Path: r.Path, Pod: v.Pod.PodRef, Policies: []string{r.Policy},
					Message: fmt.Sprintf("pod %s is denied every destination on the ports of this rule: %s; write fewer or narrower names, networks, or a rule for all destinations", v.Pod.PodRef, of[r.ID]),
				})
			})
		}
		out.Views = append(out.Views, v)
	}
	return NewSnapshot(out, s.pods, s.podByAddr)
}

// clusterObject names the cluster policy of a rule as the readers of its kind do, so that it is hidden from those
// who may not read the kind.
func clusterObject(r *Rule) string {
	if kind, name, of := strings.Cut(r.Policy, ":"); of {
		return kind + " " + name
	}
	return "clusterpolicy " + r.Policy
}

// close returns a view with closed rules, and calls each with the rules as they were.
func (v *View) close(rules map[RuleID]string, each func(*Rule)) *View {
	closed := *v
	closed.Cluster = slices.Clone(v.Cluster) // views that share it have the same rules
	closed.closed = maps.Clone(v.closed)
	if closed.closed == nil {
		closed.closed = map[RuleID]bool{}
	}
	as := map[*Rule]*Rule{} // lists of the node share rules
	for r := range v.Rules.Cluster() {
		if _, is := rules[r.ID]; r.ID != "" && is {
			closed.closed[r.ID], as[r] = true, r.close()
			each(r)
		}
	}
	replace := func(list []*Rule) []*Rule {
		out := slices.Clone(list)
		for i, r := range out {
			out[i] = cmp.Or(as[r], r)
		}
		return out
	}
	closed.Rules.Admin, closed.Rules.Baseline = replace(v.Rules.Admin), replace(v.Rules.Baseline)
	for _, of := range []**TrafficRules{&closed.Traffic, &closed.Confirmed} {
		if *of != nil {
			traffic := **of
			traffic.Local.Egress = replace(traffic.Local.Egress)
			*of = &traffic
		}
	}
	return &closed
}

// close returns the rule as a closed one.
func (r *Rule) close() *Rule {
	c := *r
	c.Closed, c.Action, c.Peer, c.Matches, c.ID = true, Deny, Peer{Kind: PeerAnywhere}, nil, ""
	return &c
}
