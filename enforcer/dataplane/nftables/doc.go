// Package nftables has nft alone hold the Namespace tier: neither the programs nor the modules
// of iptables and ipset are needed.
//
// The judge of the nft tables asks sets of grants in the subjects' chains in place of candidates, and a
// table of its own is the second net. Package ruleset adds the sets to the tables' state. Grants are
// elements with a timeout, in a set of each subject for single ports and in sets of addresses
// for other ports, which are written and listed by netlink. Package enforcer calls the
// package, which knows nothing of names and DNS.
package nftables
