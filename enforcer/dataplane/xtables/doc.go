// Package xtables renders what a dataplane is to hold to chains of iptables and to sets of
// ipset, writes them and verifies them.
//
// The chains hook in where packets enter, are delivered and are forwarded. In mangle a source
// address is checked against its home, and rules about what a pod dialled mark candidates, which the judge of the
// nft tables admits; in security everything of isolated pods that has no admission is dropped.
// Package enforcer calls it. It knows nothing of names and DNS, and is the only package that
// knows the sets and the limits of iptables and ipset. The members of grant sets are
// dataplane.Grants.
//
// The kernel finds a set by comparing names one by one, so each set costs each grant, each
// listing and each restart: the single ports of a pod share one set.
package xtables
