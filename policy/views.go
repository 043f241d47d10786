package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// makeViews fills in everything of s that comes from pods.
func (c *Compiler) makeViews(in Input, s *Snapshot) {
	s.pods = c.orderPods(in.Pods, s)
	s.podByAddr = make(map[netip.Addr]PodRef, len(s.pods))
	s.byAddr = map[netip.Addr]*View{}
	s.byRef = map[PodRef]*View{}
	contested := claimAddresses(s)
	c.selectPods(s)
	c.meetPeers(in, s)
	c.share()
	reported := map[[2]string]bool{}
	for i := range s.pods {
		p := &s.pods[i]
		if !p.Local() || p.Finished() {
			continue
		}
		sel := c.selected[p.PodRef]
		switch {
		case sel.rules == nil:
		case p.HostNetwork:
			s.Problems = append(s.Problems, Problem{
				Object: "pod " + p.String(), Reason: ReasonHostNetwork,
				Message: fmt.Sprintf("the pod uses the host network, so its traffic cannot be told from the node's, and %s cannot hold for it; "+
					"remove hostNetwork or select other pods", strings.Join(sel.rules.policies, ", ")),
				Pod: p.PodRef, Policies: sel.rules.policies,
			})
		default:
			r := sel.reach
			if r != nil {
				r = r.now
			}
			s.addView(sel.settle(withoutAddrs(p, contested), r))
			s.reportInterfaces(p, sel.rules)
			s.reportLeftOut(p, sel.rules, reported)
			s.reportLeftPeers(p, r, reported)
		}
	}
	c.closeContested(contested, s)
	slices.SortFunc(s.Views, func(a, b *View) int { return compareRefs(a.Pod.PodRef, b.Pod.PodRef) })
}

// selectPods finds out what selects each local pod.
func (c *Compiler) selectPods(s *Snapshot) {
	alike := map[string]*ruleset{}
	for i := range s.pods {
		p := &s.pods[i]
		if !p.Local() || p.Finished() {
			continue
		}
		sel := c.selectPod(p, alike)
		if sel.rules == nil || p.HostNetwork {
			sel.forgetView()
		} else {
			c.reachOf(p, sel)
		}
	}
	for ref, sel := range c.selected {
		if sel.seen != c.number {
			delete(c.selected, ref)
		}
	}
}

// reportInterfaces reports that a pod has interfaces which no rule sees.
func (s *Snapshot) reportInterfaces(p *Pod, r *ruleset) {
	if !p.SecondInterfaces {
		return
	}
	s.Problems = append(s.Problems, Problem{
		Object: "pod " + p.String(), Reason: ReasonSecondInterface,
		Message: fmt.Sprintf("the pod has further network interfaces, and %s cannot hold for what goes through them; "+
			"take them from the pod, or limit the networks that they lead to", strings.Join(r.policies, ", ")),
		Pod: p.PodRef, Policies: r.policies,
	})
}

// reportLeftOut reports what a bound leaves out, each policy for the first of the
// pods alone: thousands may have the same.
func (s *Snapshot) reportLeftOut(p *Pod, r *ruleset, reported map[[2]string]bool) {
	for i := range r.left {
		l := &r.left[i]
		if key := [2]string{l.id, l.why}; !reported[key] {
			reported[key] = true
			s.Problems = append(s.Problems, l.problem(p.String()))
		}
	}
}

// orderPods returns the pods sorted, their addresses unmapped, without those that no
// pod can have and those of finished pods.
func (c *Compiler) orderPods(pods []Pod, s *Snapshot) []Pod {
	pods = slices.Clone(pods)
	for i := range pods {
		p := &pods[i]
		if p.Finished() {
			p.IPs = nil
		}
		s.refuseAddrs(p)
		if slices.ContainsFunc(p.IPs, func(a netip.Addr) bool { return a != cleanAddr(a) }) {
			p.IPs = cleanAddrs(p.IPs)
		}
	}
	slices.SortStableFunc(pods, func(a, b Pod) int { return compareRefs(a.PodRef, b.PodRef) })
	return slices.CompactFunc(pods, func(a, b Pod) bool {
		if a.PodRef != b.PodRef {
			return false
		}
		s.Problems = append(s.Problems, Problem{
			Object: "pod " + a.String(), Reason: ReasonPartiallyInvalid,
			Message: "the pod is given twice; the first one counts, remove the other",
		})
		return true
	})
}

// refuseAddrs takes away the addresses that no pod can have, and reports them.
func (s *Snapshot) refuseAddrs(p *Pod) {
	refused := func(a netip.Addr) bool { return CheckPodAddr(a) != nil }
	if !slices.ContainsFunc(p.IPs, refused) {
		return
	}
	for _, a := range p.IPs {
		if err := CheckPodAddr(a); err != nil {
			s.Problems = append(s.Problems, Problem{Object: "pod " + p.String(), Reason: ReasonAddressInvalid, Message: err.Error()})
		}
	}
	p.IPs = slices.DeleteFunc(slices.Clone(p.IPs), refused)
}

func cleanAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

func cleanAddrs(addrs []netip.Addr) []netip.Addr {
	var clean []netip.Addr
	for _, a := range addrs {
		if a = cleanAddr(a); !slices.Contains(clean, a) {
			clean = append(clean, a)
		}
	}
	return clean
}

func compareRefs(a, b PodRef) int {
	if a.Namespace != b.Namespace {
		return strings.Compare(a.Namespace, b.Namespace)
	}
	if a.Name != b.Name {
		return strings.Compare(a.Name, b.Name)
	}
	return strings.Compare(a.UID, b.UID)
}

// claimAddresses fills in whose each address is. A pod of this node comes before
// one of another, whose traffic never leaves from here. It returns the addresses
// that several pods of this node claim, with those pods.
func claimAddresses(s *Snapshot) map[netip.Addr][]*Pod {
	contested := map[netip.Addr][]*Pod{}
	owner := make(map[netip.Addr]*Pod)
	for _, local := range []bool{true, false} {
		for i := range s.pods {
			p := &s.pods[i]
			if p.Local() != local || p.HostNetwork {
				continue
			}
			for _, a := range p.IPs {
				if _, taken := s.podByAddr[a]; !taken {
					s.podByAddr[a] = p.PodRef
					if local {
						owner[a] = p
					}
					continue
				}
				if o := owner[a]; local && o != p {
					if len(contested[a]) == 0 {
						contested[a] = append(contested[a], o)
					}
					contested[a] = append(contested[a], p)
				}
			}
		}
	}
	return contested
}

// selectPod brings what is known of a local pod up to date.
func (c *Compiler) selectPod(p *Pod, alike map[string]*ruleset) *selection {
	sel := c.selected[p.PodRef]
	was := sel
	if sel == nil {
		sel = &selection{}
		c.selected[p.PodRef] = sel
	} else if !maps.Equal(sel.pod.Labels, p.Labels) {
		was, sel.reached = nil, 0
	}
	sel.rules = c.rulesOf(c.spaces[p.Namespace], labels.Set(p.Labels), was, alike)
	sel.pod, sel.seen = *p, c.number
	if sel.rules != nil {
		sel.rules.used = c.number
	}
	return sel
}

// forgetView forgets what only a pod with a view has: it is kept up to date for no other.
func (sel *selection) forgetView() {
	sel.view, sel.reach, sel.reached = nil, nil, 0
}

// settle returns the view of the pod, the last one if nothing in it changed.
func (sel *selection) settle(p Pod, r *reach) *View {
	if sel.view == nil || sel.view.rules != sel.rules || sel.view.reach != r || !samePod(&sel.view.Pod, &p) {
		sel.view = newView(p, sel.rules)
		if r != nil {
			sel.view.reach, sel.view.Peers, sel.view.NetworkPolicies = r, r.rules, r.policies
		}
	}
	return sel.view
}

func newView(p Pod, r *ruleset) *View {
	return &View{
		Pod: p, Enforced: r.enforced, Denied: r.denied, Unmatched: r.unmatched,
		Entries: r.entries, Policies: r.policies, Workload: p.Workload(), rules: r,
	}
}

func samePod(a, b *Pod) bool {
	return a.PodRef == b.PodRef && a.HostNetwork == b.HostNetwork && a.NodeName == b.NodeName && a.Phase == b.Phase &&
		a.SecondInterfaces == b.SecondInterfaces &&
		slices.Equal(a.IPs, b.IPs) && slices.Equal(a.Ports, b.Ports) && maps.Equal(a.Labels, b.Labels)
}

func (s *Snapshot) addView(v *View) {
	s.Views = append(s.Views, v)
	s.byRef[v.Pod.PodRef] = v
	for _, a := range v.Pod.IPs {
		s.byAddr[a] = v
	}
}

// withoutAddrs returns the pod without the addresses that others claim too.
func withoutAddrs(p *Pod, contested map[netip.Addr][]*Pod) Pod {
	rest := *p
	if slices.ContainsFunc(p.IPs, func(a netip.Addr) bool { return contested[a] != nil }) {
		rest.IPs = slices.DeleteFunc(slices.Clone(p.IPs), func(a netip.Addr) bool { return contested[a] != nil })
	}
	return rest
}
