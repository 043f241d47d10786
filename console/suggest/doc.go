// Package suggest writes the smallest FQDNNetworkPolicy that allows the denied
// connections of an audit log: per workload, name by name and port by port; or one
// ClusterFQDNNetworkPolicy that accepts the names which many namespaces need. It is pure:
// it reads lines and returns policies and the connections that they do not cover.
package suggest
