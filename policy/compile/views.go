package compile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
)

// makeViews fills in everything of s that comes from pods.
func (c *Compiler) makeViews(in Input, s *draft) {
	s.pods = c.orderPods(in.Pods, s)
	conflicts := claimAddresses(s)
	c.selectPods(in, s)
	c.selectNode(in.Node)
	c.indexPeers(in, s)
	c.applyQuotas(s)
	c.addNode(&in, s)
	reported, reportedIngress := map[[2]string]bool{}, map[[2]string]bool{}
	for i := range s.pods {
		p := &s.pods[i]
		if !p.Local() || p.Finished() {
			continue
		}
		sel := c.selected[p.PodRef]
		switch {
		case !sel.selected():
		case p.HostNetwork:
			s.Problems = append(s.Problems, policy.Problem{
				Object: "pod " + p.String(), Reason: policy.ReasonHostNetwork,
				Message: fmt.Sprintf("the pod uses the host network, so its traffic cannot be distinguished from the node's, and %s cannot hold for it; "+
					"policies for nodes hold for it: write a NodeNetworkPolicy, remove hostNetwork, or select other pods", strings.Join(sel.rules.shared.Policies, ", ")),
				Pod: p.PodRef, Policies: sel.rules.shared.Policies,
			})
		default:
			s.Views = append(s.Views, c.viewOf(sel, withoutAddrs(p, conflicts), in.EnforceNetworkPolicies))
			s.reportInterfaces(p, sel, in.EnforceNetworkPolicies)
			if sel.rules != nil {
				s.reportLeft(p, sel.rules.left, reported)
			}
			if r := sel.egress.inForce(); r != nil {
				s.reportLeft(p, r.left, reported)
			}
			if r := sel.ingress.inForce(); r != nil {
				s.reportLeft(p, r.left, reportedIngress)
			}
		}
	}
	maps.DeleteFunc(c.ingresses, func(_ ingressParts, in *sharedIngress) bool { return in.used != c.number })
	c.closeConflicts(conflicts, s, in.EnforceNetworkPolicies)
}

// selectPods finds out what selects each local pod.
func (c *Compiler) selectPods(in Input, s *draft) {
	for i := range s.pods {
		p := &s.pods[i]
		if !p.Local() || p.Finished() {
			continue
		}
		sel := c.selectPod(p, in.Namespaces)
		all := in.EnforceNetworkPolicies && !p.HostNetwork
		c.egress.find(c.number, p, &sel.egress, all || !p.HostNetwork && sel.rules != nil || sel.cluster.hasEgress())
		c.ingress.find(c.number, p, &sel.ingress, all || sel.cluster.hasIngress())
		if p.HostNetwork || !sel.selected() {
			sel.view = nil
		}
	}
	for ref, sel := range c.selected {
		if sel.seen != c.number {
			delete(c.selected, ref)
		}
	}
}

// reportInterfaces reports that a pod has interfaces which no rule sees.
func (s *draft) reportInterfaces(p *policy.Pod, sel *selection, standalone bool) {
	if !p.SecondInterfaces {
		return
	}
	var policies, named []string
	if sel.rules != nil {
		policies = sel.rules.shared.Policies
		named = slices.Clone(policies)
	}
	for _, r := range []*netRules{sel.egress.rules, sel.ingress.rules} {
		if standalone && r != nil {
			named = append(slices.Clip(named), r.policies...)
		}
	}
	slices.Sort(named)
	named = slices.Compact(named)
	if sel.cluster != nil {
		for _, of := range sel.cluster.policies {
			policies = append(slices.Clip(policies), of.ID)
		}
		named = append(slices.Clip(named), "cluster policies") // people who see the pod may not read their names
	}
	s.Problems = append(s.Problems, policy.Problem{
		Object: "pod " + p.String(), Reason: policy.ReasonSecondInterface,
		Message: fmt.Sprintf("the pod has further network interfaces, and %s cannot hold for what goes through them; "+
			"take them from the pod, or limit the networks that they lead to", strings.Join(named, ", ")),
		Pod: p.PodRef, Policies: policies,
	})
}

// orderPods returns the pods sorted, their addresses unmapped, without invalid addresses
// and without the addresses of finished pods.
func (c *Compiler) orderPods(pods []policy.Pod, s *draft) []policy.Pod {
	pods = slices.Clone(pods)
	for i := range pods {
		p := &pods[i]
		if p.Finished() {
			p.IPs = nil
		}
		s.refuseAddrs(p)
		if slices.ContainsFunc(p.IPs, func(a netip.Addr) bool { return a != policy.CleanAddr(a) }) {
			p.IPs = policy.CleanAddrs(p.IPs)
		}
	}
	slices.SortStableFunc(pods, func(a, b policy.Pod) int { return a.Compare(b.PodRef) })
	return slices.CompactFunc(pods, func(a, b policy.Pod) bool {
		if a.PodRef != b.PodRef {
			return false
		}
		s.Problems = append(s.Problems, policy.Problem{
			Object: "pod " + a.String(), Reason: policy.ReasonPartiallyInvalid,
			Message: "the pod is given twice; the first one counts, remove the other",
		})
		return true
	})
}

// refuseAddrs takes away the addresses that no pod can have, and reports them.
func (s *draft) refuseAddrs(p *policy.Pod) {
	refused := func(a netip.Addr) bool { return policy.CheckPodAddr(a) != nil }
	if !slices.ContainsFunc(p.IPs, refused) {
		return
	}
	for _, a := range p.IPs {
		if err := policy.CheckPodAddr(a); err != nil {
			s.Problems = append(s.Problems, policy.Problem{Object: "pod " + p.String(), Reason: policy.ReasonAddressInvalid, Message: err.Error()})
		}
	}
	p.IPs = slices.DeleteFunc(slices.Clone(p.IPs), refused)
}

// claimAddresses assigns each address to its pod. A pod of this node comes before a pod
// of another node, whose traffic never leaves from here. It returns the addresses that
// several pods of this node claim, with those pods.
func claimAddresses(s *draft) map[netip.Addr][]*policy.Pod {
	conflicts := map[netip.Addr][]*policy.Pod{}
	addrs := 0
	for i := range s.pods {
		addrs += len(s.pods[i].IPs)
	}
	s.podByAddr = make(map[netip.Addr]policy.PodRef, addrs)
	for _, local := range []bool{true, false} {
		for i := range s.pods {
			p := &s.pods[i]
			if p.Local() != local || p.HostNetwork {
				continue
			}
			for _, a := range p.IPs {
				owner, taken := s.podByAddr[a]
				switch {
				case !taken:
					s.podByAddr[a] = p.PodRef
				case local && owner != p.PodRef:
					if len(conflicts[a]) == 0 {
						first, _ := slices.BinarySearchFunc(s.pods, owner, func(p policy.Pod, ref policy.PodRef) int { return p.Compare(ref) })
						conflicts[a] = append(conflicts[a], &s.pods[first])
					}
					conflicts[a] = append(conflicts[a], p)
				}
			}
		}
	}
	return conflicts
}

// selectPod updates the compiler's state of a local pod.
func (c *Compiler) selectPod(p *policy.Pod, namespaces map[string]map[string]string) *selection {
	sel := c.selected[p.PodRef]
	known := sel != nil && maps.Equal(sel.pod.Labels, p.Labels)
	if sel == nil {
		sel = &selection{}
		c.selected[p.PodRef] = sel
	}
	if !known {
		sel.egress.at, sel.ingress.at, sel.clusterAt = 0, 0, 0
	}
	sel.rules = c.rulesets.of(c.number, c.policies.spaces[p.Namespace], sel.rules, known, func(r *parsed) bool { return r.Pods.Matches(p.Labels) })
	sel.pod, sel.seen = *p, c.number
	if p.HostNetwork {
		sel.cluster = nil
		return sel
	}
	known = sel.clusterAt == c.number-1
	sel.clusterAt = c.number
	sel.cluster = c.cluster.unions.of(c.number, &c.clusterSpace(p.Namespace, namespaces[p.Namespace]).space, sel.cluster, known, func(g *clusterGroup) bool { return g.pods.Matches(p.Labels) })
	return sel
}

// selected tells whether a policy that counts alone selects the pod.
func (sel *selection) selected() bool {
	return sel.rules != nil || sel.cluster != nil || sel.egress.rules != nil || sel.ingress.rules != nil
}

// viewParts is what a view is made of beside its pod, each nil for nothing.
type viewParts struct {
	rules      *ruleset
	egress     *netRules
	cluster    *clusterRules
	ingress    *policy.Ingress
	standalone bool
}

// viewOf returns the view of the pod, the last one if nothing in it changed.
func (c *Compiler) viewOf(sel *selection, p policy.Pod, standalone bool) *policy.View {
	r := sel.egress.inForce()
	of := viewParts{sel.rules, r, sel.cluster, c.ingressOf(sel), standalone}
	if sel.view == nil || sel.viewOf != of || !sel.view.Pod.Same(&p) {
		sel.view, sel.viewOf = newView(p, sel.rules), of
		sel.view.Ingress, sel.view.Standalone = of.ingress, standalone
		rules := &sel.view.Rules
		if r != nil {
			sel.view.NetworkPolicies, rules.Namespace = r.policies, sel.rules.with(r)
		}
		sel.cluster.addTo(sel.view)
	}
	return sel.view
}

// addTo adds the rules of cluster policies to a view, nil for none.
func (r *clusterRules) addTo(v *policy.View) {
	if r == nil {
		return
	}
	v.Rules.Admin, v.Rules.Baseline = r.shared.Rules.Admin, r.shared.Rules.Baseline
	v.Cluster, v.AdminUnmatched, v.BaselineUnmatched = r.shared.Cluster, r.shared.AdminUnmatched, r.shared.BaselineUnmatched
	v.AdminLimits, v.BaselineLimits = r.shared.AdminLimits, r.shared.BaselineLimits
}

// newView returns a view with the rules of the pod's namespace, nil for none.
func newView(p policy.Pod, r *ruleset) *policy.View {
	v := policy.View{Index: &policy.Index{}}
	if r != nil {
		v = r.shared
	}
	v.Pod, v.Workload = p, p.Workload()
	return &v
}

// withoutAddrs returns the pod without the addresses that others claim too.
func withoutAddrs(p *policy.Pod, conflicts map[netip.Addr][]*policy.Pod) policy.Pod {
	rest := *p
	if slices.ContainsFunc(p.IPs, func(a netip.Addr) bool { return conflicts[a] != nil }) {
		rest.IPs = slices.DeleteFunc(slices.Clone(p.IPs), func(a netip.Addr) bool { return conflicts[a] != nil })
	}
	return rest
}
