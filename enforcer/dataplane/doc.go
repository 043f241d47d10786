// Package dataplane describes the wanted content of a node's packet filter: subjects with
// their addresses and homes, whether they are default-deny, and the addresses that are
// granted to them, independently of any packet filter. Rules about peers and ordered rules
// are in nft with each dataplane, and in its words.
//
// Package plan makes subjects and rules from snapshots, and package grants has the
// grants. Package enforcer hands them to a dataplane, which is an Interface; xtables is
// one, and package agent chooses it.
package dataplane
