// Package inject is the seam by which the self-test puts a packet into the node as if a
// pod had sent it, without entering the pod. The enforcer's self-test alone calls it; the
// package knows interfaces and packets, and nothing of pods, policies or what becomes of
// the packet.
//
// Send returns before the packet is handled. A kernel that lacks a part that injection
// needs is an error for which IsUnsupported holds, and no reason to stop the agent.
//
// Kernel works in the network namespace in which Open was called, where it keeps a pair of
// links until Close. Fake hands each packet to the function that a test set for the
// interface.
package inject
