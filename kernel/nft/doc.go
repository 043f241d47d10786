// Package nft is the seam to nftables: it makes tables hold what a caller wants, compares them with it, and reads them
// back. What is wanted is a plain value, a Table for each: a layout, which stays as long as an agent runs, chains and sets
// beside it, and elements. The package knows no table, chain or set by its name.
//
// The Store writes the elements of timed sets, which end by themselves (package timed). They are no part of a Table.
// Nothing else changes them, and they stay where another layout replaces one.
//
// Each table is written in one transaction, which is in force as a whole or not at all: chains
// by the program nft, elements by netlink (package wire); an error leaves each
// table as it was, and the next Apply writes all anew. A chain beside the layout that elements lead to is to have a name of
// its rules: other rules are other chains, to which other elements lead. Packets under way meet the rules
// of before the transaction and the elements of after it: so another transaction comes before
// it with new chains to which elements lead, and another after it removes another layout's maps.
// Every write returns after the kernel has acknowledged it. Nothing read from the kernel
// becomes desired state.
//
// The fakes are knftables': New takes interfaces of it. On fakes reads go through
// them, hooks are not compared, no change is reported, every change counts as external,
// counters are 0, and entries end by the clock of Store.FakeClock.
package nft
