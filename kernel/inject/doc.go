// Package inject is the seam by which the self-test puts a packet into the node as if a
// pod had sent it, without entering the pod. The enforcer's self-test calls it, and resets of offloaded connections; the
// package knows interfaces and packets, and nothing of pods, policies or what becomes of
// the packet.
//
// Only a packet that comes in by the pod's own interface tells how the pod's packets fare. A
// set that netfilter fills from the pod's packets is empty for a silent pod as it is for a
// pod that bypasses netfilter, the link's counters count neighbour discovery too, and a
// dropped query would show after the pod lost it. What a packet socket or nft's dup and fwd
// send on the node's end of the link goes to the pod.
//
// Send returns before the packet is handled. A kernel that lacks a part that injection
// needs is an error that says which modules to load, and no reason to stop the agent.
//
// Kernel works in the network namespace in which Open was called, where it keeps a pair of
// links until Close.
package inject
