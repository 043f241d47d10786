// Package generation separates our own changes of nftables, including those of iptables in
// nftables, from other programs' changes: the kernel numbers all changes in a network namespace,
// and ours are counted. It also keeps a reading of tables and our changes apart.
//
// Packages nft and timed make each of their changes through one Tracker. The package knows nothing
// of tables.
package generation
