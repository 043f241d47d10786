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
func (c *Compiler) closeConflicts(conflicts map[netip.Addr][]*policy.Pod, s *draft, standalone bool) {
	closed := map[policy.PodRef]*policy.View{}
	for _, a := range slices.SortedFunc(maps.Keys(conflicts), netip.Addr.Compare) {
		claimants := conflicts[a]
		ref := jointRef(claimants)
		v := closed[ref]
		if v == nil {
			if v = c.closedView(ref, claimants, standalone); v == nil {
				continue
			}
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

// closedView returns the view in place of pods that claim one address, nil if no policy selects one of them.
func (c *Compiler) closedView(ref policy.PodRef, claimants []*policy.Pod, standalone bool) *policy.View {
	var of []*policy.View
	var ingress []*policy.Ingress
	var policies []string
	selected := false
	for _, p := range claimants {
		sel := c.selected[p.PodRef]
		selected = selected || sel.selected()
		if sel.rules != nil {
			of = append(of, &sel.rules.shared)
		}
		if sel.cluster != nil {
			of = append(of, &sel.cluster.closed)
		}
		if standalone && sel.egress.rules != nil {
			policies = append(policies, sel.egress.rules.policies...)
		}
		if sel.view != nil && sel.view.Ingress != nil {
			ingress = append(ingress, sel.view.Ingress)
		}
	}
	if !selected {
		return nil
	}
	v := newView(policy.Pod{PodRef: ref}, closedRuleset(of))
	slices.Sort(policies)
	v.NetworkPolicies, v.Standalone = slices.Compact(policies), standalone
	if len(ingress) > 0 {
		v.Ingress = closedIngress(ingress)
	}
	return v
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
		slices.Equal(a.Policies, b.Policies) && slices.Equal(a.Pod.IPs, b.Pod.IPs) &&
		a.Standalone == b.Standalone && slices.Equal(a.NetworkPolicies, b.NetworkPolicies) && sameClosedIngress(a.Ingress, b.Ingress)
}

func sameClosedIngress(a, b *policy.Ingress) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.NetworkPolicies, b.NetworkPolicies) &&
		slices.EqualFunc(a.Admin, b.Admin, func(x, y *policy.Rule) bool { return x.Policy == y.Policy && x.Path == y.Path })
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
