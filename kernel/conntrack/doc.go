// Package conntrack is the seam to the kernel's connection tracking: which connections a
// pod opened, and the mark bit that says that they were admitted. The enforcer lists,
// marks and deletes connections by it, and the audit of denied packets looks up what
// became of one; the package knows addresses and marks, and not what the bit means.
//
// A listing walks the node's whole table once; a connection that ends meanwhile may be in
// it or not. Changes of a connection that has ended are no error. Every change returns
// after the kernel has acknowledged it.
//
// Kernel works in the network namespace in which Open was called. Fake tracks the
// connections that a test gives it, which never end by themselves, and counts the scans of
// the table.
package conntrack
