package kube

import (
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/peers"
)

// ReasonUnreadable means: an address or range of a node, Service or EndpointSlice is none, and is left out.
const ReasonUnreadable = "Unreadable"

// nodeEntry has the used fields of a node.
type nodeEntry struct {
	name     string
	addrs    []netip.Addr
	ranges   []netip.Prefix
	peer     *policy.Pod  // nil: not wanted
	own      *policy.Host // nil: another's, or not wanted
	problems []policy.Problem
}

// readNode returns a reader of nodes, with asPeers as the peers that they may be too. own is the name
// of the node whose object is wanted, "" for none.
func readNode(asPeers bool, own string) func(any, *nodeEntry) *nodeEntry {
	return func(object any, before *nodeEntry) *nodeEntry {
		n, ok := object.(*corev1.Node)
		if !ok {
			return nil
		}
		e := nodeEntryOf(n)
		if n.Name == own {
			e.own = &policy.Host{Labels: n.Labels, Addrs: e.addrs, ProviderID: n.Spec.ProviderID}
		}
		if asPeers {
			e.peer = peers.Node(e.name, n.Labels, e.addrs)
		}
		if before != nil && before.peer != nil && e.peer.Same(before.peer) {
			e.peer = before.peer
		}
		return e
	}
}

var errNoNode = errors.New("not a node")

// trimNode takes from a node all that readNode does not read: a Node with 50 images takes ten times
// the memory until all are gathered.
func trimNode(object any) (any, error) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return nil, errNoNode
	}
	*n = corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, ResourceVersion: n.ResourceVersion, Labels: n.Labels},
		Spec:       corev1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs, ProviderID: n.Spec.ProviderID},
		Status:     corev1.NodeStatus{Addresses: n.Status.Addresses},
	}
	return n, nil
}

func nodeEntryOf(n *corev1.Node) *nodeEntry {
	e := &nodeEntry{name: n.Name}
	e.addrs = policy.NodeAddrs(n, func(i int, text string) {
		e.problems = append(e.problems, unreadable("node "+n.Name, fmt.Sprintf("status.addresses[%d].address", i), text))
	})
	ranges := n.Spec.PodCIDRs
	if len(ranges) == 0 && n.Spec.PodCIDR != "" {
		ranges = []string{n.Spec.PodCIDR}
	}
	for i, text := range ranges {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			e.problems = append(e.problems, unreadable("node "+n.Name, fmt.Sprintf("spec.podCIDRs[%d]", i), text))
			continue
		}
		e.ranges = append(e.ranges, p.Masked())
	}
	return e
}

// nodePeers returns the nodes as peers.
func nodePeers(entries []*nodeEntry) (list []*policy.Pod) {
	for _, e := range entries {
		if e.peer != nil && len(e.peer.IPs) > 0 {
			list = append(list, e.peer)
		}
	}
	return list
}

func unreadable(object, path, text string) policy.Problem {
	return policy.Problem{Object: object, Reason: ReasonUnreadable, Path: path, Message: fmt.Sprintf("%q cannot be read and is left out", text)}
}

func cleanAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// listNodes sets the addresses of the cluster's nodes, and the object of the own one.
func listNodes(entries []*nodeEntry, c *policy.Cluster) (problems []policy.Problem) {
	c.Nodes, c.Own = nil, nil
	for _, e := range entries {
		if e.own != nil {
			c.Own = e.own
		}
		c.Nodes = append(c.Nodes, e.addrs...)
		problems = append(problems, e.problems...)
	}
	c.Nodes = sortedOnce(c.Nodes, netip.Addr.Compare)
	return problems
}
