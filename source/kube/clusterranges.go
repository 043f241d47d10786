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

// ReasonOutsideClusterRanges means: an address or pod range of this node is outside of the
// cluster ranges of the configuration. Where each agent watches its own Node alone, the agents
// of other nodes know it by these ranges only.
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

// outsideClusterRanges returns a problem for each address and pod range of this node that the
// agents of other nodes do not know.
func (s *Source) outsideClusterRanges(c *policy.Cluster) (problems []policy.Problem) {
	if !s.ownOnly {
		return nil
	}
	ranges := s.ranges.Load()
	report := func(path string, outside fmt.Stringer) {
		problems = append(problems, policy.Problem{Object: "node " + s.node, Reason: ReasonOutsideClusterRanges, Path: path, Message: fmt.Sprintf(
			"%s is outside of the cluster ranges of the configuration: the agents of other nodes do not protect it from names outside the cluster; "+
				"add its range to cluster.ranges, or to the directive cluster of the Corefile", outside)})
	}
	for _, a := range c.Nodes {
		if !ranges.Contains(a) {
			report("status.addresses", a)
		}
	}
	for _, p := range c.PodRanges {
		if !ranges.ContainsPrefix(p) {
			report("spec.podCIDRs", p)
		}
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
