// Package nft is the seam to nftables: Namegate's own tables, which intercept DNS packets
// and give their replies back, check the homes of addresses, and judge connections: admit,
// or log and deny.
//
// There are two tables: "inet namegate", and "bridge namegate", which sees bridge ports
// that the inet family does not distinguish. While an agent runs, the elements of their sets
// change, and the chains and sets of ordered rules come and go; the other chains never
// change. The enforcer describes elements and ordered rules by a State and calls Setup,
// Apply, Verify, Rewrite and Heartbeat; the package knows nothing of policies, grants, pods
// beyond their addresses, or DNS messages.
//
// Entries, which rules by name ask, are no part of a State: ApplyEntries writes them into
// sets that a State names, they end by themselves, and ListEntries reads them (package timed).
// Nothing else changes them, and they stay where another layout replaces one.
//
// Each table is written in one transaction, which is in force as a whole or not at all: chains
// by the program nft, elements by netlink (package wire); an error leaves one of the
// two tables as it was, and the next Apply writes both anew. The chains of ordered rules never change:
// other rules are other chains, to which other elements lead. Packets under way meet the rules
// of before the transaction and the elements of after it: so another transaction comes before
// it with new chains to which elements lead, and another after it removes another layout's maps.
// Every write returns after the kernel has acknowledged it. Nothing read from the kernel
// becomes desired state.
//
// The fake is knftables': New takes two knftables.Interface. On fakes reads go through
// them, hooks are not compared, no change is reported, every change counts as external,
// nothing is counted as denied, and entries end by the clock of FakeClock.
package nft
