// Package compile turns policies and pods into snapshots: for each selected pod of
// the node the names that it may resolve, and what an answer then opens.
//
// The agent, check and explain call it with an Input. It is pure: it does no I/O, reads
// no clock and starts no goroutine. A Compiler keeps what one compile learned for the
// next, so that a change costs what it touches; the Snapshot that it makes is immutable.
//
// # Rules
//
// The readers of the kinds (policy/api) make rules, and a view is ordered lists of these, one
// for each tier. Views of pods that the same policies select share the lists and one index of
// the names; the lists of cluster policies also where namespaced policies differ. What the
// policies of one pod hold together is bounded, and so is the work that a compile does ahead of
// the questions: see MaxViewMatches and the constants beside it.
//
// # Cluster policies
//
// Their rules stand before and behind those of the namespace, in views of the pods that they
// select. Policies of one subject are one group: selected, and indexed by names, together.
//
// # Directions
//
// NetworkPolicies are read and selected once for each direction, so that a change of one leaves the
// rules of the other as they are, and nothing of ingress is kept where none counts. The rules for
// ingress of a pod are one Ingress, which pods with the same rules and named ports share.
//
// # Peers
//
// Rules with peers name them by a canonical text, and a snapshot has their members. A
// change of pods or of namespaces' labels changes peer sets alone, never views, and only
// those sets that it touches: membership is asked again for the addresses that changed
// hands, or, after many changes, collected anew from an index of the pods by their labels.
// Sets that no view asks for are not filled.
//
// # Closed by default
//
// A part of a namespaced policy that cannot be read opens nothing: a bad match matches
// nothing, a bad port adds no port, and a setting that does not exist counts as the
// strictest one. An address that two pods of the node claim is closed for both.
package compile
