// Package ordered has the form in which the readers of all kinds return a policy: a place in the
// order of evaluation, a subject, and rules in order. Policies of a namespace have the tier of it, and no other
// place.
//
// The readers fill it in, and the compiler asks no more of a kind. The package knows the
// model and package peers.
package ordered
