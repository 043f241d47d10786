// Package clusternetworkpolicy holds the evaluation of ClusterNetworkPolicies against the
// reference implementation of the standard: sigs.k8s.io/kube-network-policies says what
// random policies allow, wherever the standard speaks. Each known difference is shown, with
// its reason. It is a module of its own, so that nothing of that reaches the agent.
package clusternetworkpolicy
