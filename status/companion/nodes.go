package companion

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeBoot is what is kept of a Node: its boot, by the word of its kubelet. The kernel of a
// later boot has no rule of an agent of an earlier one.
type nodeBoot struct {
	metav1.ObjectMeta // its name and version alone
	boot              string
}

// trimNode leaves of a Node what is kept.
func trimNode(object any) (any, error) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	return &nodeBoot{metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion}, n.Status.NodeInfo.BootID}, nil
}

// bootChanged tells whether a Node that was there before is, or may be, in another boot.
func bootChanged(before, after any) bool {
	b, ok := before.(*nodeBoot)
	a, both := after.(*nodeBoot)
	return before != nil && after != nil && (!ok || !both || a.boot != b.boot)
}

// standing returns what is known of the policies on a node: what its agent says of an
// earlier boot does not count.
func (c *Controller) standing(name string) Standing {
	said := c.state.Nodes[name]
	object, _, _ := c.nodes.GetStore().GetByKey(name) // its error is of keys that are no text
	if n, ok := object.(*nodeBoot); ok && n.boot != "" && said.Boot != "" && n.boot != said.Boot {
		return NotInForce
	}
	return said.Standing
}
