package kube

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/namegate/namegate/policy"
)

// ReasonOutsideClusterRanges means: a pod range of a Node is outside of the cluster ranges of the
// configuration, or too wide, and left out: otherwise one Node could open and close any range on all
// nodes. Where each agent watches its own Node alone, it means also an address of this node that the
// agents of other nodes do not know.
const ReasonOutsideClusterRanges = "OutsideClusterRanges"

// SetClusterRanges sets the cluster ranges of the configuration, with which a Source compares
// the addresses that objects claim. It may be called at any time.
func (s *Source) SetClusterRanges(ranges []netip.Prefix) {
	var b netipx.IPSetBuilder
	for _, p := range ranges {
		b.AddPrefix(p)
	}
	set, err := b.IPSet()
	if err != nil { // of invalid prefixes, which a configuration does not have
		set = &netipx.IPSet{}
	}
	s.ranges.Store(set)
	s.note()
}

// nodeRequests are for the Nodes that the source watches.
func (s *Source) nodeRequests() requests {
	filter := unfiltered
	if s.ownOnly {
		filter = func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.node).String()
		}
	}
	c := s.client.CoreV1().Nodes()
	return newRequests(s.client, filter, c.List, c.Watch)
}

// The fewest bits of a pod range of a Node that counts. Such a range is the pods of one node, which
// has a /24 or a /64 by default.
const (
	minPodBits4 = 16
	minPodBits6 = 48
)

// limitRanges leaves out the pod ranges of Nodes that could be more than pods, and returns a
// problem for each. It has problems as well for what only the agent of this node knows.
func (s *Source) limitRanges(entries []*nodeEntry, c *policy.Cluster) (problems []policy.Problem) {
	ranges := s.ranges.Load()
	some := len(ranges.Prefixes()) > 0
	report := func(node, path string, claim fmt.Stringer, what, who string) {
		problems = append(problems, policy.Problem{Object: "node " + node, Reason: ReasonOutsideClusterRanges, Path: path, Message: fmt.Sprintf(
			"%s is %s: %s do not protect it from names outside the cluster; add its range to cluster.ranges, or to the directive cluster of the Corefile", claim, what, who)})
	}
	const outside, others = "outside of the cluster ranges of the configuration", "the agents of other nodes"
	c.PodRanges, c.LocalRanges = nil, nil
	for _, e := range entries {
		for _, p := range e.ranges {
			in := ranges.ContainsPrefix(p)
			switch {
			case some && !in:
				report(e.name, "spec.podCIDRs", p, outside+" and left out", "agents")
				continue
			case p.Addr().Is4() && p.Bits() < minPodBits4, p.Addr().Is6() && p.Bits() < minPodBits6:
				report(e.name, "spec.podCIDRs", p, fmt.Sprintf("wider than the pods of a node (/%d, IPv6 /%d) and left out", minPodBits4, minPodBits6), "without cluster.ranges, agents")
				continue
			case s.ownOnly && !in:
				report(e.name, "spec.podCIDRs", p, outside, others)
			}
			c.PodRanges = append(c.PodRanges, p)
			if e.name == s.node {
				c.LocalRanges = append(c.LocalRanges, p)
			}
		}
	}
	for _, a := range c.Nodes {
		if s.ownOnly && !ranges.Contains(a) {
			report(s.node, "status.addresses", a, outside, others)
		}
	}
	c.PodRanges = sortedOnce(c.PodRanges, netip.Prefix.Compare)
	c.LocalRanges = sortedOnce(c.LocalRanges, netip.Prefix.Compare)
	const most = 16
	if more := len(problems) - most; more > 0 {
		problems = problems[:most]
		problems[most-1].Message += fmt.Sprintf(" (and %d more)", more)
	}
	return problems
}

// externalIPs returns a problem for each namespace with Services that have external IPs outside
// of the cluster ranges: anyone who writes Services claims addresses by them. The entries are
// sorted by namespace.
func externalIPs(entries []*serviceEntry, ranges *netipx.IPSet, c *policy.Cluster) (problems []policy.Problem) {
	const most = 8
	var claims []string
	for i, e := range entries {
		for _, a := range e.external {
			_, service := slices.BinarySearchFunc(c.Services, a, netip.Addr.Compare)
			_, node := slices.BinarySearchFunc(c.Nodes, a, netip.Addr.Compare)
			if !service && !node && !ranges.Contains(a) {
				claims = append(claims, fmt.Sprintf("%s %s", e.ref.Name, a))
			}
		}
		if last := i+1 == len(entries) || entries[i+1].ref.Namespace != e.ref.Namespace; !last || len(claims) == 0 {
			continue
		}
		text := strings.Join(claims[:min(len(claims), most)], ", ")
		if n := len(claims) - most; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		claims = nil
		problems = append(problems, policy.Problem{Object: "namespace " + e.ref.Namespace, Reason: policy.ReasonExternalIPs, Message: fmt.Sprintf(
			"Services have external IPs outside of the cluster ranges of the configuration: %s. Names outside the cluster still open these addresses, and kube-proxy leads connections of all pods to them to these Services; "+
				"forbid external IPs (admission plugin DenyServiceExternalIPs), or add addresses that belong to the cluster to cluster.ranges", text)})
	}
	return problems
}
