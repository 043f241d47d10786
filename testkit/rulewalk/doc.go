// Package rulewalk walks packets through chains of iptables as the kernel does. It is for the
// tests of the packages that render rules: it knows the matches and targets that these
// use, and panics on any other.
package rulewalk
