package kube

import (
	"fmt"
	"net/netip"
	"sync/atomic"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/namegate/namegate/policy"
)

// ReasonOutsideClusterRanges means: an address or pod range of this node is outside of the
// cluster ranges of the configuration. Where each agent watches its own Node alone, the agents
// of other nodes know it by these ranges only.
const ReasonOutsideClusterRanges = "OutsideClusterRanges"

// ownNode tells whether a Source watches its own Node only, and has the ranges with which it
// compares that Node.
type ownNode struct {
	only   bool
	ranges atomic.Pointer[netipx.IPSet] // not nil
}

func (n *ownNode) setRanges(ranges []netip.Prefix) {
	var b netipx.IPSetBuilder
	for _, p := range ranges {
		b.AddPrefix(p)
	}
	set, err := b.IPSet()
	if err != nil { // of invalid prefixes, which a configuration does not have
		set = &netipx.IPSet{}
	}
	n.ranges.Store(set)
}

// SetClusterRanges sets the cluster ranges of the configuration, with which a Source of
// Options.OwnNodeOnly compares its Node. It may be called at any time.
func (s *Source) SetClusterRanges(ranges []netip.Prefix) {
	s.ownNode.setRanges(ranges)
	s.note()
}

// nodeRequests are for the Nodes that the source watches.
func (s *Source) nodeRequests() requests {
	filter := unfiltered
	if s.ownNode.only {
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
	if !s.ownNode.only {
		return nil
	}
	ranges := s.ownNode.ranges.Load()
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
