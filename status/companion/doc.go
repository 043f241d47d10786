// Package companion decides which companion NetworkPolicies there are and what each opens, and
// writes them. A companion stands beside a NetworkPolicy that limits egress: it opens
// Namegate's endpoint to the pods that the NetworkPolicy and an FQDNNetworkPolicy both
// select, and may open the ports of that policy's rules, so that what the
// FQDNNetworkPolicy allows is not denied by the cluster's own engine.
//
// Package status makes a Controller for each term of the elected agent and calls Reconcile
// with the policies and with what the agents say of their nodes. Ports are open only while
// every node with a pod of the policy enforces it. The package knows neither Leases nor
// conditions nor how an agent is elected.
package companion
