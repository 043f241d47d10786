package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
)

// clusterIngress is the rules for ingress of ClusterNetworkPolicies that select the same pods.
type clusterIngress struct {
	union[*clusterGroup]
	rules policy.Rules
	names []policy.NamedPort // of the subject, that rules ask for
}

// newClusterIngress returns the rules of groups.
func (c *Compiler) newClusterIngress(groups []*clusterGroup) *clusterIngress {
	r := &clusterIngress{}
	for _, p := range c.policiesOf(groups) {
		tier := &r.rules.Admin
		if p.Tier == policy.Baseline {
			tier = &r.rules.Baseline
		}
		*tier = appendRules(*tier, p.ingress(), c.cluster.heavy)
	}
	for rule := range r.rules.Cluster() {
		r.names = append(r.names, rule.PortNames...)
	}
	r.names = portsOnce(r.names)
	return r
}

// ingressParts is what the rules for ingress of a pod are made of, each nil for nothing.
type ingressParts struct {
	cluster *clusterIngress
	nets    *netRules
	ports   string // of the pod, that rules name
}

// sharedIngress is the rules for ingress of all pods with the same parts.
type sharedIngress struct {
	*policy.Ingress
	used uint64 // the compile that used it last
}

// ingressOf returns the rules for ingress of a pod, nil for none: the same as in the last compile if
// nothing in them changed.
func (c *Compiler) ingressOf(sel *selection) *policy.Ingress {
	of := ingressParts{nets: sel.ingress.inForce()}
	var names []policy.NamedPort
	if sel.cluster != nil {
		of.cluster = sel.cluster.ingress
	}
	if of.cluster == nil && of.nets == nil {
		return nil
	}
	if of.cluster != nil {
		names = of.cluster.names
	}
	if of.nets != nil {
		names = append(slices.Clip(names), of.nets.names...)
	}
	var ports []policy.NamedPort
	if len(names) > 0 {
		ports = portsOnce(slices.DeleteFunc(slices.Clone(sel.pod.Ports), func(p policy.NamedPort) bool { return !asksFor(names, p) }))
		of.ports = portsText(ports)
	}
	shared := c.ingresses[of]
	if shared == nil {
		shared = &sharedIngress{Ingress: of.make(ports)}
		c.ingresses[of] = shared
	}
	shared.used = c.number
	return shared.Ingress
}

// make makes the rules for a pod with some ports, nil if none is left.
func (of ingressParts) make(ports []policy.NamedPort) *policy.Ingress {
	in := &policy.Ingress{}
	if of.cluster != nil {
		in.Admin, in.Baseline = withPorts(of.cluster.rules.Admin, ports), withPorts(of.cluster.rules.Baseline, ports)
	}
	if of.nets != nil {
		in.NetworkPolicies = of.nets.policies
		if in.Namespace = of.nets.rules; len(of.nets.names) > 0 {
			in.Namespace = withPorts(of.nets.rules, ports)
			sortByPeer(in.Namespace)
		}
	} else if len(in.Admin)+len(in.Baseline) == 0 {
		return nil
	}
	return in
}

// withPorts returns rules with the ports of a pod that they name, without those that have no port
// then: these match nothing.
func withPorts(rules []*policy.Rule, ports []policy.NamedPort) []*policy.Rule {
	if !slices.ContainsFunc(rules, func(r *policy.Rule) bool { return len(r.PortNames) > 0 }) {
		return rules
	}
	out := make([]*policy.Rule, 0, len(rules))
	for _, r := range rules {
		if len(r.PortNames) > 0 {
			own, ranges := *r, r.Ports.Ranges()
			for _, p := range ports {
				if asksFor(r.PortNames, p) {
					ranges = append(ranges, policy.PortRange{Protocol: p.Protocol, First: p.Port, Last: p.Port})
				}
			}
			if own.Ports = policy.NewPortSet(ranges...); own.Ports == "" {
				continue
			}
			r = &own
		}
		out = append(out, r)
	}
	return out
}

// asksFor tells whether a port has one of some names, with its protocol.
func asksFor(names []policy.NamedPort, p policy.NamedPort) bool {
	p.Port = 0
	return slices.Contains(names, p)
}

// portsOnce sorts ports and leaves each once.
func portsOnce(ports []policy.NamedPort) []policy.NamedPort {
	slices.SortFunc(ports, func(a, b policy.NamedPort) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return slices.Compact(ports)
}

// portsText tells lists of ports apart.
func portsText(ports []policy.NamedPort) string {
	if len(ports) == 0 {
		return ""
	}
	return fmt.Sprint(ports)
}

// closedIngress returns rules that deny everything, in place of those of pods that claim one address.
func closedIngress(of []*policy.Ingress) *policy.Ingress {
	closed := &policy.Ingress{}
	for _, in := range of {
		closed.NetworkPolicies = append(closed.NetworkPolicies, in.NetworkPolicies...)
	}
	slices.Sort(closed.NetworkPolicies)
	closed.NetworkPolicies = slices.Compact(closed.NetworkPolicies)
	if len(closed.NetworkPolicies) > 0 { // a default denies
		return closed
	}
	for rule := range of[0].Cluster() {
		deny := *rule
		deny.Tier, deny.Action, deny.Peer, deny.Ports, deny.PortNames = policy.Admin, policy.Deny, policy.Peer{Kind: policy.PeerAnywhere}, policy.AnyPort, nil
		deny.Broken, deny.Closed = false, true
		closed.Admin = []*policy.Rule{&deny}
		break
	}
	return closed
}
