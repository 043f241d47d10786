// Package peers finds the pods and networks that the rules of NetworkPolicies select.
//
// A reader of NetworkPolicies fills Destinations and makes Specs of them: the selection
// of a policy.Peer, in a canonical text. The compiler keeps an Index of the pods by their
// addresses, namespaces, labels and named ports, and for each Spec a Set that it keeps up
// to date. A Weigher counts the cost of filling a set, for the compiler's bounds.
//
// The package knows the model alone: no policy, no view, no API object but the label
// selector. It does no I/O and reads no clock. Nothing in it is for more than one
// goroutine.
package peers
