// Package access is how people reach agents that are not at their feet, and what
// agents let them see. An agent listens on its node with TLS, publishes the
// fingerprint of its key where people of the cluster can read it, asks the API
// server who calls and what the caller may get, and answers. A person's side finds
// the agent of a pod, refuses every other server, and calls with the credentials
// that kubectl would use.
//
// Access is that to policies: who may get fqdnnetworkpolicies in a namespace sees
// that namespace's rows.
package access
