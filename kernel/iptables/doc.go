// Package iptables is the seam to iptables' chains, IPv4 and IPv6, in the legacy variant or
// in nftables: transactions for one table rendered for iptables-restore --noflush, a parser
// of iptables-save, and the choice of the variant that the host uses. The enforcer writes
// and compares its chains by it; the package knows chains and rules as text alone, and
// nothing of pods, grants or sets.
//
// A transaction is applied as a whole or not at all, and Restore returns after the kernel
// has acknowledged it. Chains of other programs are read and never written, but for the
// rules that Insert and Remove name.
//
// Exec runs iptables' programs in the network namespace of the calling thread. The Fake of iptablestest
// interprets transactions in memory, in the order in which the kernel takes them, and
// refuses what the kernel refuses: a jump to a chain that is not there, the deletion of a
// chain that is referred to, the removal of a rule that is not there, a name that is too
// long. It knows no matches; Dump prints a table as text.
package iptables
