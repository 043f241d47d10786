// Package matchpattern compares converted patterns of Cilium with Cilium's own matcher. It is a
// module of its own, because Cilium has many dependencies.
package matchpattern
