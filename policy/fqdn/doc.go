// Package fqdn reads domain names and patterns of names, and finds the patterns that
// match a name.
//
// The readers of policies and of DNS messages make names; a compiled view asks a Matcher.
// The package knows nothing of policies, ports or pods: a Matcher finds values of the
// caller's type. It does no I/O and reads no clock.
//
// # The matcher
//
// Exact names are keys of one map, and each key's result already holds what wildcards
// add to it. Wildcards are in a trie of labels from the right: a place has a map of
// literal labels, a place for "*", and lists of other globs by their first byte. Equal patterns of
// any number of policies are one place. So the cost of a question grows with its labels, with the
// different globs that begin like them, and with how many different patterns match it, but not with
// the policies.
package fqdn
