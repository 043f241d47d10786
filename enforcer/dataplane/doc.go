// Package dataplane describes what the packet filter of a node is to hold, in words that
// no packet filter has: subjects with their addresses and homes, whether they are
// default-deny, and the rules of what they may reach.
//
// Package plan makes these values from snapshots. Package enforcer hands them to a
// dataplane, which is an Interface; xtables is one, and package agent chooses it. The package
// knows nothing of chains, sets, tables or their limits.
package dataplane
