// Package failsafes computes the failsafes of a node (policy/failsafe) and keeps them current.
// Their sources are the network below the pods (kernel/underlay), the host's files (package
// hostfiles), the objects of the cluster, and the Corefile. The agent runs a Keeper and gives
// each List to the enforcer and the console; the package knows neither.
//
// A source that cannot be read keeps its last values. An entry that its source ceased to list
// stays for a day. A name keeps the addresses of its earlier answers. So neither an outage nor
// a rewritten file closes a destination that the node needs.
package failsafes
