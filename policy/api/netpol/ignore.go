package netpol

import networkingv1 "k8s.io/api/networking/v1"

// IgnoreLabel with IgnoreValue marks a NetworkPolicy that is for another engine alone: Namegate
// reads none of it, so that it neither limits a pod nor opens anything. Package netpolicyfor makes
// such objects.
const (
	IgnoreLabel = "namegate.io/ignore"
	IgnoreValue = "true"
)

// Ignored tells whether a NetworkPolicy is for another engine alone.
func Ignored(n *networkingv1.NetworkPolicy) bool { return n.Labels[IgnoreLabel] == IgnoreValue }
