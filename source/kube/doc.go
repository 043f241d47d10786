// Package kube reads policies, pods and what else Namegate must know of a cluster
// from its API server, and follows their changes.
//
//	API server ──list, watch──► feed ──► shelf (trimmed) ──► one State a burst ──► receiver
//
// There is a feed for this node's pods, for all policies, NetworkPolicies, namespaces,
// Services and nodes, for the EndpointSlices of each Service that is followed, and for
// the pods of other nodes while a NetworkPolicy leads pods of this node there. Each
// fills a shelf with the little that is used of its objects; a change of anything else
// is no event.
//
// Nothing is handed on until every shelf was filled once. Pods of other nodes that come
// to be needed later hold States back until they are known, for PeersPatience at most,
// and not where the API server refuses them; without them what leads there is closed.
// From the first State on the last one stays in force whatever happens to the API
// server, and Health says since when it is away and why.
//
// An object that cannot be understood becomes a problem of the State and costs
// neither the others nor the State.
package kube
