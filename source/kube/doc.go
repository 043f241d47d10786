// Package kube reads policies, pods and the rest of a cluster's objects that Namegate needs
// from the API server, and watches their changes. The agent makes one Source, and gets its
// States in one goroutine. The package decides nothing: it knows neither views nor rules.
//
//	API server ──list, watch──► listWatch ──► store (trimmed) ──► one State a burst ──► receiver
//
// There is a listWatch for this node's pods, for all policies, NetworkPolicies, namespaces
// and Services, for all Nodes or this node's alone, for cluster policies where they are
// served, for the EndpointSlices of each watched Service, and for the pods of other nodes in
// each namespace to which policies lead pods of this node. Each fills a store with the used
// fields of its objects; a change of any other field is no event.
//
// No State is emitted until every store was filled once. Pods of other nodes that come to
// be needed later hold States back until they are known, for PeersPatience at most, and not
// where the API server refuses them; without them connections there are closed. From the
// first State on the last State stays in force whatever happens to the API server, and
// Health says since when it is away and why.
//
// An object that cannot be understood becomes a problem of the State and costs neither the
// other objects nor the State.
package kube
