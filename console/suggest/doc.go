// Package suggest writes the least FQDNNetworkPolicy that allows what an audit log
// saw denied: per workload, name by name and port by port. It is pure: it reads lines
// and returns policies and what could not be put into them.
package suggest
