package policy

import (
	"maps"
	"slices"
)

// Defer returns s with connections of some pods not isolated yet: each has the view that it had in last,
// but for Ingress, which waits for no names, and is unknown if last did not know it: so the agent gets its queries.
// Isolation is not deferred for a pod that last isolates, or whose addresses differ from last: an address must not
// become open because it changes hands. Without such pods Defer returns s.
func (s *Snapshot) Defer(last *Snapshot, pods map[PodRef]bool) *Snapshot {
	deferred := map[PodRef]*View{}
	for ref := range pods {
		if v := s.ViewOf(ref); v != nil && v.InForce() && v.deferrable(last) {
			deferred[ref] = v.inboundAfter(last.ViewOf(ref))
		}
	}
	if len(deferred) == 0 {
		return s
	}
	out, owners := *s, maps.Clone(s.podByAddr)
	out.Views = slices.DeleteFunc(slices.Clone(s.Views), func(v *View) bool {
		_, waits := deferred[v.Pod.PodRef]
		return waits
	})
	unknown := map[PodRef]bool{}
	for ref, before := range deferred {
		if before != nil {
			out.Views = append(out.Views, before)
		}
		known := false
		for _, a := range s.byRef[ref].Pod.IPs {
			_, there := last.Pod(a)
			if known = known || there; !there {
				delete(owners, a)
			}
		}
		unknown[ref] = !known
	}
	return NewSnapshot(out, slices.DeleteFunc(slices.Clone(s.pods), func(p Pod) bool { return unknown[p.PodRef] }), owners)
}

// inboundAfter returns the view before, nil for none, with the rules for ingress of v.
func (v *View) inboundAfter(before *View) *View {
	switch {
	case before == nil && v.Ingress == nil, before != nil && before.Ingress == v.Ingress:
		return before
	case before == nil:
		before = &View{Pod: v.Pod, Index: &Index{}, Workload: v.Workload}
	}
	out := *before
	out.Ingress = v.Ingress
	return &out
}

// deferrable tells whether the view's pod may stay as it is in last.
func (v *View) deferrable(last *Snapshot) bool {
	before := last.ViewOf(v.Pod.PodRef)
	if before != nil && (before.InForce() || !slices.Equal(before.Pod.IPs, v.Pod.IPs)) {
		return false
	}
	known := 0
	for _, a := range v.Pod.IPs {
		owner, there := last.Pod(a)
		if there && owner != v.Pod.PodRef {
			return false
		}
		if there {
			known++
		}
	}
	return known == 0 || known == len(v.Pod.IPs)
}

// Isolates tells whether a policy enforces rules for connections of a pod.
func (s *Snapshot) Isolates(p PodRef) bool {
	v := s.ViewOf(p)
	return v != nil && v.InForce()
}
