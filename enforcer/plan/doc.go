// Package plan makes of a snapshot, and of where its pods' addresses are at home, what a
// dataplane is to hold. Package enforcer calls it whenever either changes.
//
// It is pure: it reads no kernel and keeps no state but a cache of rule lists. It knows
// nothing of how a dataplane renders its values.
package plan
