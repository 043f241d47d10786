// Package conntrack is the seam to the kernel's connection tracking: the connections of
// pods, and the mark bit of admitted connections. The enforcer lists, marks and deletes
// connections by it, and the audit of denied packets looks up the actual destinations;
// the package knows addresses and marks, and not the meaning of the bit.
//
// A listing reads the node's whole table once; a connection that ends meanwhile may be in
// it or not. Changes of a connection that has ended are no error. Every change returns
// after the kernel has acknowledged it.
//
// The kernel tells how much time a connection has left. Established reads the timeouts of the
// protocols from the sysctls of the calling thread's network namespace, and tells the time since
// the last packet by the difference. A timeout policy that another program attached to a
// connection is not seen: with a shorter one the connection looks idle for too long, with a longer
// one the time is unknown. A connection of TCP whose peer closed its window looks idle for too
// long as well.
//
// Kernel works in the network namespace in which Open was called. The Fake of conntracktest tracks the
// connections that a test gives it, which never end by themselves, and counts the scans
// of the table.
package conntrack
