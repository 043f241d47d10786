// Package ordered has the form in which the readers of both kinds of cluster policies
// return a policy: a place in the order of evaluation, a subject, and rules in order.
//
// The readers fill it in, and the compiler asks no more of a kind. The package knows the
// model and package peers.
package ordered
