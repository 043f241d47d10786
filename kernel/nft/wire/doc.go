// Package wire reads and writes nftables' words in the kernel's netlink messages: keys and
// values of sets, ranges of interval sets, comments, and transactions that add sets, change elements
// and remove chains and sets. Package nft calls it: the program nft reads the sets of the host before it
// changes an element, which takes 30 ms where a table has a thousand rules by name. That program writes
// chains and their rules.
//
// It knows nothing of what the tables mean. It has no fake: it is behind the seam.
package wire
