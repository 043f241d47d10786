// Package names is conformance tests for domainNames of ClusterNetworkPolicy, in the style
// of the upstream suite: one test for each behaviour that NPEP-133 expects, and a few beyond
// it that have features of their own. The tests know the Kubernetes API alone, and no
// implementation.
//
// New prepares a cluster: a DNS server for a zone, to which the cluster's resolver forwards.
// Tests returns the tests; each has a pod of its own, so that none sees the DNS queries of
// another, and they run in parallel.
package names
