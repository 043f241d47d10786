// Package marks tells which rules of nftables use a bit of marks, by the expressions that the kernel
// lists. Package nft calls it with other programs' rules. The package asks no kernel.
package marks
