package policy

import (
	"cmp"
	"strings"
)

// ClusterPolicy is the place of one cluster policy in the order of evaluation.
type ClusterPolicy struct {
	Tier     Tier
	Priority int32 // the lower comes first
	Standard bool  // a ClusterNetworkPolicy: of equal priorities ours come first
	Name     string
}

// OfCluster tells whether the id of a policy is a cluster policy's. Others are "namespace/name".
func OfCluster(id string) bool { return !strings.Contains(id, "/") }

// Compare orders as policies are evaluated.
func (p ClusterPolicy) Compare(o ClusterPolicy) int {
	return cmp.Or(cmp.Compare(p.Tier, o.Tier), cmp.Compare(p.Priority, o.Priority), CompareBool(p.Standard, o.Standard), strings.Compare(p.Name, o.Name))
}

// CompareBool orders false before true.
func CompareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// place returns the place of the rule's policy.
func (r *Rule) place() ClusterPolicy { return ClusterPolicy{r.Tier, r.Priority, r.Standard, r.Policy} }

// inOrder orders matches as their rules are evaluated.
func inOrder(a, b *Match) int {
	if a.Rule == b.Rule {
		return cmp.Compare(a.index, b.index)
	}
	return cmp.Or(a.Rule.place().Compare(b.Rule.place()), a.Compare(b))
}
