// Package marks finds the rules that use a bit of marks in what the program nft lists, numbers as
// numbers. Package nft calls it with other programs' tables. The package asks no kernel.
package marks
