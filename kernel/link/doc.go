// Package link is the seam to the node's interfaces, routes, neighbours and addresses. The
// enforcer asks it where a pod's address is genuine, and gives the node the endpoint's
// addresses by it; the package knows addresses and interfaces, and nothing of pods,
// policies or rules.
//
// Homes answers for the time of the question alone: Watch tells when to ask again. An
// address that the node cannot place has no entry, which is not the same as an entry
// without homes.
//
// Kernel works in the network namespace in which Open was called. The Fake of linktest has the homes and
// addresses that a test gives it and sends a token after each change of a home; it makes
// no interface.
package link
