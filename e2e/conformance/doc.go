// Package conformance runs two suites against the ClusterNetworkPolicy of a cluster, through
// its API server alone: the upstream one of sigs.k8s.io/network-policy-api, and that of
// package names. It is a module of its own and knows nothing of Namegate: README.md says how
// another implementation runs it.
package conformance
