// Package underlay is the seam to the network below the pods: the far ends of the node's
// tunnels, the next hops of its routes, and its routing sessions. The failsafes of a node are
// computed from them. The package knows addresses, protocols and ports, and nothing of nodes
// or policies.
//
// Kernel works in the network namespace in which Open was called. It reads and changes
// nothing. Fake has what a test gives it.
package underlay
