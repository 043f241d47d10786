// Package companion decides which companion NetworkPolicies there are and what each opens, and
// writes them. A companion stands beside a NetworkPolicy that limits egress: it opens
// Namegate's endpoint to the pods that the NetworkPolicy and an FQDNNetworkPolicy, or a
// ClusterFQDNNetworkPolicy, both select, and may open the ports of that policy's rules, so that
// what the policy allows is not denied by the cluster's own engine.
//
// Package status makes a Controller for each term of the elected agent and calls Reconcile
// with the policies and the bypasses that nodes found. Ports are open only where the
// administrator opted in: nothing verifies that each node enforces the policy. The package
// knows neither Leases nor conditions nor how an agent is elected.
package companion
