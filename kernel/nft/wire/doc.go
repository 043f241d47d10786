// Package wire reads and writes nftables' words in the kernel's netlink messages: keys and
// values of sets, ranges of interval sets, comments, and transactions of sets, elements, chains
// and rules. Package nft calls it: the program nft, which reads every set of a table before it
// changes one, takes 30 ms for an element where a table has a thousand rules by name.
//
// It knows nothing of what the tables mean. A Batch knows the words of the rules and elements
// that package nft renders; for others a method returns false, and the program nft has to write
// them. It has no fake: it is behind the seam.
package wire
