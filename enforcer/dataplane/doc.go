// Package dataplane describes the wanted content of a node's packet filter independently
// of any packet filter: subjects with their addresses and homes, whether they are
// default-deny, the rules for their destinations, and the addresses that are granted to
// them.
//
// Package plan makes subjects and rules from snapshots, and package grants has the
// grants. Package enforcer hands them to a dataplane, which is an Interface; xtables is
// one, and package agent chooses it. A Comparison compares and repairs grants that can be
// listed one by one. The package knows nothing of chains, sets, tables or their limits.
package dataplane
