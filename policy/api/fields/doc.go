// Package fields reads the fields that the kinds of the group namegate.io have in common:
// names and patterns, ports, lifetimes and settings. Readers of NetworkPolicies read networks and
// port ranges by it.
//
// The readers of these kinds call it with their Report. It says what to write instead of a
// value that cannot be, and returns the value that counts; what a problem means for the
// rule or the policy is the reader's to decide.
package fields
