// Package explain answers why a pod can, or cannot, reach a name or an address,
// and what to write so that it can. It is pure: it judges facts that others
// gathered, and calls no other agent.
package explain
