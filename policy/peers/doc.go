// Package peers answers which pods and networks the rules of NetworkPolicies lead to.
//
// A reader of NetworkPolicies fills Destinations and makes Specs of them: what a
// policy.Peer selects, in a canonical text. The compiler keeps an Index of the pods by
// their addresses, namespaces, labels and named ports, and for each Spec a Set that it
// brings up to date. A Weigher counts what filling a set costs, for the compiler's bounds.
//
// The package knows the model alone: no policy, no view, no API object but the label
// selector. It does no I/O and reads no clock. Nothing in it is for more than one goroutine.
package peers
