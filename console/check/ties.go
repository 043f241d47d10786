package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/peers"
)

// ties finds cluster policies of one tier and priority, and policies for nodes of one traffic and priority,
// whose order matters: rules that can match the same have different actions, and the kind and the name decide.
func (l *linter) ties() {
	all := slices.DeleteFunc(slices.Clone(l.Policies), func(p *Policy) bool { return !p.ofCluster() || p.Pods == nil && p.Nodes == nil || len(p.Rules) == 0 })
	slices.SortFunc(all, func(a, b *Policy) int { return a.Place().Compare(b.Place()) })
	budget := maxTies
	for i, p := range all {
		for j := i - 1; j >= 0 && all[j].Tier == p.Tier && all[j].Priority == p.Priority; j-- {
			before := all[j]
			if !meet(before, p) {
				continue
			}
			a, b := conflict(before, p, &budget)
			if a == nil {
				continue
			}
			if p.place.file == "" && before.place.file != "" { // findings are about the files
				l.tie(before, p, "last", b, a)
				continue
			}
			l.tie(p, before, "first", a, b)
			break
		}
	}
}

// tie adds the finding that another policy comes first or last by its kind or name, with a rule of it
// and one of the policy.
func (l *linter) tie(p, other *Policy, comes string, its, own *policy.Rule) {
	decides := "name"
	if other.Standard != p.Standard {
		decides = "kind (ClusterFQDNNetworkPolicies come first)"
	}
	tier := fmt.Sprintf("tier %s and ", p.Tier)
	if p.ofNodes != nil {
		tier = ""
	}
	l.warn(p, PriorityTie, "spec.priority", fmt.Sprintf(
		"%s%s has %spriority %d too, and comes %s by its %s; its %s (%s) and %s (%s) here can match the same connection; write different priorities",
		other.Object, other.place.where("spec.priority"), tier, p.Priority, comes, decides, its.Path, effect(its), own.Path, effect(own)))
}

// meet tells whether a pod may be selected by both policies, or a node for one traffic.
func meet(a, b *Policy) bool {
	if a.Nodes != nil || b.Nodes != nil {
		if a.Nodes == nil || b.Nodes == nil || a.Traffic != b.Traffic {
			return false
		}
		_, nodes := peers.Sample(a.Nodes, b.Nodes)
		return nodes
	}
	_, namespaces := peers.Sample(a.Namespaces, b.Namespaces)
	_, pods := peers.Sample(a.Pods, b.Pods)
	return namespaces && pods
}

// maxTies bounds how many pairs of matches are compared.
const maxTies = 4 << 20

// effect is the action of a rule, with Deny for a broken one.
func effect(r *policy.Rule) policy.Action {
	if r.Broken {
		return policy.Deny
	}
	return r.Action
}

// conflict returns a rule of each policy that can match the same and have different actions,
// nil for none.
func conflict(a, b *Policy, budget *int) (x, y *policy.Rule) {
	for _, r := range a.Rules {
		for _, s := range b.Rules {
			if r.Ingress == s.Ingress && effect(r.Rule) != effect(s.Rule) && (portsMeet(r.Ports, s.Ports) || len(r.PortNames)+len(s.PortNames) > 0) && destinationsMeet(r.Rule, s.Rule, budget) {
				return r.Rule, s.Rule
			}
		}
	}
	return nil, nil
}

// portsMeet tells whether two sets have a port in common.
func portsMeet(a, b policy.PortSet) bool {
	for _, x := range a.Ranges() {
		for _, y := range b.Ranges() {
			any := x.Protocol == policy.AnyProtocol || y.Protocol == policy.AnyProtocol
			if any || x.Protocol == y.Protocol && x.First <= y.Last && y.First <= x.Last {
				return true
			}
		}
	}
	return false
}

// destinationsMeet tells whether two rules may lead to the same destination. Addresses of
// names may be those of any peer.
func destinationsMeet(a, b *policy.Rule, budget *int) bool {
	switch x, y := a.Peer.Kind, b.Peer.Kind; {
	case x == policy.PeerNames && y == policy.PeerNames:
		return slices.ContainsFunc(a.Matches, func(m *policy.Match) bool {
			return slices.ContainsFunc(b.Matches, func(n *policy.Match) bool {
				*budget--
				return *budget > 0 && (covers(m.Pattern, n.Pattern) || covers(n.Pattern, m.Pattern))
			})
		})
	case x == policy.PeerNetworks && y == policy.PeerNetworks:
		return networksMeet(a.Peer.Key, b.Peer.Key)
	}
	return true
}

// networksMeet tells whether two lists of networks have an address in common, and true for
// lists that cannot be read: those of many networks are digests.
func networksMeet(a, b string) bool {
	for x := range strings.SplitSeq(a, ",") {
		p, err := netip.ParsePrefix(x)
		if err != nil {
			return true
		}
		for y := range strings.SplitSeq(b, ",") {
			if q, err := netip.ParsePrefix(y); err != nil || p.Overlaps(q) {
				return true
			}
		}
	}
	return false
}
