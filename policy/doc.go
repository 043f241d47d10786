// Package policy is the model: pods, port sets, rules and their matches, the View of one
// selected pod, the Snapshot of all views, and the Grant that an answer makes.
//
// Package compile makes snapshots; the proxy, the enforcer, audit and console read them.
// The package is pure: it does no I/O, reads no clock and starts no goroutine. A Snapshot
// is immutable and may be read from anywhere.
//
// A View is an ordered list of rules. Evaluate and Decide are the one evaluation of
// connections and of questions: the proxy, the audit log and the console ask them, and the
// rules of the kernel are tested against them. Where a question leaves the port open,
// EvaluateAny evaluates a flow for each range of ports, and Steps lists the rules in order.
//
// A Peer is the selection of a rule of a NetworkPolicy, in a canonical text; its PeerSet
// has the selected addresses in one snapshot.
package policy
