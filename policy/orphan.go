package policy

import (
	"maps"
	"slices"
	"strings"
)

// orphaned is the end of the names of orphans. No other pod's name has a "+".
const orphaned = "+orphaned"

// Orphan returns the name under which a pod is known that has no object any more while its
// processes may run on.
func (r PodRef) Orphan() PodRef {
	if !strings.HasSuffix(r.Name, orphaned) {
		r.Name += orphaned
	}
	return r
}

// closedIngress are the rules for ingress of all orphans, which allow nothing.
var closedIngress = &Ingress{NetworkPolicies: []string{orphaned}}

// WithOrphans returns s with views of orphans, which no rule allows anything. A view that last has
// too is the same *View. ingress tells whether rules for ingress are in force.
func (s *Snapshot) WithOrphans(orphans []Pod, last *Snapshot, ingress bool) *Snapshot {
	if len(orphans) == 0 {
		return s
	}
	out, pods, owners := *s, slices.Concat(s.pods, orphans), maps.Clone(s.podByAddr)
	out.Views = slices.Clone(s.Views)
	var closed *Ingress
	if ingress {
		closed = closedIngress
	}
	for _, p := range orphans {
		v := last.ViewOf(p.PodRef)
		if v == nil || !v.Pod.Same(&p) {
			v = &View{Pod: p, Enforced: true, Unmatched: Refuse, Index: &Index{}, Ingress: closed}
		}
		out.Views = append(out.Views, v)
		for _, a := range p.IPs {
			owners[a] = p.PodRef
		}
	}
	slices.SortFunc(pods, func(a, b Pod) int { return a.Compare(b.PodRef) })
	return NewSnapshot(out, pods, owners)
}
