// Package ipset is the seam to the kernel's IP sets. The enforcer keeps grants and pods'
// addresses in sets and compares them by it; the package knows sets and entries, and not
// their use.
//
// Every change returns after the kernel has acknowledged it: DNS answers wait for that.
// Apply batches changes of many sets into few system calls; each change succeeds or fails
// by itself. A listing of a set that changes meanwhile may have an entry or not. Errors
// are distinguished by IsNotFound, IsBusy and IsMismatch alone.
//
// Kernel works in the network namespace in which Open was called, over three sockets:
// listings, changes of entries and the rest do not wait for each other. Fake interprets
// the same operations in memory, with the kernel's errors; its entries end by the clock
// that it is given, it counts no packets, Refer stands for a rule that refers to a set, and
// Dump prints the sets as text.
package ipset
