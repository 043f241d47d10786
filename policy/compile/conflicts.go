package compile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
)

// closeConflicts gives every address in conflict that a policy concerns to a closed view:
// its traffic cannot be assigned to one of the pods, so it is denied. The view stands for
// a pod that does not exist and that is named after all pods that claim the address.
func (c *Compiler) closeConflicts(conflicts map[netip.Addr][]*policy.Pod, s *draft) {
	closed := map[policy.PodRef]*policy.View{}
	for _, a := range slices.SortedFunc(maps.Keys(conflicts), netip.Addr.Compare) {
		claimants := conflicts[a]
		var of []*policy.View
		for _, p := range claimants {
			sel := c.selected[p.PodRef]
			if sel.rules != nil {
				of = append(of, &sel.rules.shared)
			}
			if sel.cluster != nil {
				of = append(of, &sel.cluster.closed)
			}
		}
		if len(of) == 0 {
			continue
		}
		ref := jointRef(claimants)
		v := closed[ref]
		if v == nil {
			v = newView(policy.Pod{PodRef: ref}, closedRuleset(of))
			closed[ref] = v
		}
		v.Pod.IPs = append(v.Pod.IPs, a)
		s.podByAddr[a] = ref
		reportConflict(s, a, claimants)
	}
	for ref, v := range closed {
		if last := c.conflicts[ref]; last != nil && sameClosed(last, v) {
			closed[ref] = last
		}
		s.Views = append(s.Views, closed[ref])
	}
	c.conflicts = closed
}

// jointRef names the claimants in one reference. No pod is called so, as "+" is
// not allowed in the name of one.
func jointRef(claimants []*policy.Pod) policy.PodRef {
	ref := claimants[0].PodRef
	for _, p := range claimants[1:] {
		ref.UID += "+" + p.UID
		if p.Namespace == ref.Namespace {
			ref.Name += "+" + p.Name
		} else {
			ref.Name += "+" + p.String()
		}
	}
	return ref
}

func sameClosed(a, b *policy.View) bool {
	return a.Enforced == b.Enforced && a.Denied == b.Denied && a.Unmatched == b.Unmatched && a.Limits == b.Limits &&
		slices.Equal(a.Policies, b.Policies) && slices.Equal(a.Pod.IPs, b.Pod.IPs)
}

func reportConflict(s *draft, a netip.Addr, claimants []*policy.Pod) {
	names := make([]string, len(claimants))
	for i, p := range claimants {
		names[i] = p.String()
	}
	for _, p := range claimants {
		s.Problems = append(s.Problems, policy.Problem{
			Object: "pod " + p.String(), Reason: policy.ReasonAddressConflict,
			Message: fmt.Sprintf("%s claim the address %s; nothing is allowed for it until one of them is gone",
				strings.Join(names, " and "), a),
		})
	}
}
