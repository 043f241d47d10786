// Package handover knows the agent that served the node before this one. While one agent
// follows another both grant and both answer: the predecessor answers the queries that it
// took before its successor's interception was in force. Until it is gone its serving
// addresses stay open, its replies are given back, and no grant ends at a deadline that it
// may have moved.
//
// Package enforcer calls it at its start and before grants expire, and takes over what the
// predecessor left. The package writes nothing to the kernel.
package handover
