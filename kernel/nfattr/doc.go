// Package nfattr reads and writes netfilter's netlink messages: attributes, requests and
// listings. The other packages of kernel call it where the libraries cost too much: a
// listing of 100,000 connections or of 10,000 sets, and the write of a batch of entries,
// go through one buffer and allocate nothing per attribute. mdlayher/netlink's decoder
// copies each value and its connection holds a whole listing. Sockets stay open: to close one holds
// up all transactions of nftables until the kernel has freed what the last ones deleted, an RCU grace period
// later (nft_rcv_nl_event of net/netfilter/nf_tables_api.c): 12 to 20 ms.
//
// It knows the form of messages and not their meaning, and has no fake: it is behind the
// seams.
package nfattr
