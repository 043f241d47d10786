// Package access connects people with the agents of other nodes, and decides their
// access. An agent listens on its node with TLS, publishes the fingerprint of its key
// where users of the cluster can read it, asks the API server for the caller's identity
// and rights, and answers. The client side finds the agent of a pod, refuses every other
// server, and calls with the credentials that kubectl would use.
//
// Access follows access to policies: a user who may get fqdnnetworkpolicies in a
// namespace sees that namespace's rows.
package access
