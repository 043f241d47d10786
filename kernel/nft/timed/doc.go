// Package timed keeps the entries of nftables sets that end by themselves: the entries that rules by
// name ask, and grants. It adds, renews, counts, removes and lists entries.
//
// Package nft makes the sets, and the rules that ask them. Its Tables have a Store, by which the
// enforcer writes and lists entries at any time. The package knows nothing of rules, and nothing of
// names or pods beyond their addresses.
//
// Each write is a transaction by netlink, which hardly waits for other changes of this agent's. Rules
// ask first whether any set has an entry for the packet's subject and dialled address, so the key of
// each entry that rules by name ask is in a set of keys too. The fake is knftables': entries end by the
// clock of FakeClock.
package timed
