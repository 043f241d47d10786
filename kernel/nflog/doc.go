// Package nflog is the seam by which packets that the kernel logs come to the agent. The
// agent hands its audit of denied connections the packets of one group; kernel/nft has the
// rules that log, and takes the prefixes from here. The package reads headers and nothing
// else, and knows no pods and no policies.
//
// Delivery is best effort: packets wait in a bounded buffer, and Lost counts how often some
// did not fit. One program at a time has a group: Packets waits for it.
//
// Kernel works in the network namespace of the thread that called Open.
package nflog
