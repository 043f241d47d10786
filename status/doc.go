// Package status tells the users of the cluster what the agents made of their
// policies: by conditions, by events, and where it is wanted by NetworkPolicies
// that open the endpoint.
//
// Each agent writes what it found on its node to a Lease of its own, and emits
// events for it. One agent, elected, gathers all Leases and writes the conditions
// and the companions. Nothing here decides what is enforced.
package status
