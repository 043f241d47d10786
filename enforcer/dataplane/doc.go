// Package dataplane describes what the packet filter of a node is to hold, in words that
// no packet filter has: subjects with their addresses and homes, whether they are
// default-deny, the rules of what they may reach, and the addresses that are granted to them.
//
// Package plan makes subjects and rules from snapshots, and package grants has the grants.
// Package enforcer hands them to a dataplane, which is an Interface; xtables is one, and
// package agent chooses it. The package knows nothing of chains, sets, tables or their limits.
package dataplane
