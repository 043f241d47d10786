// Package plan makes the wanted content of a dataplane from a snapshot and from the homes
// of its pods' addresses. Package enforcer calls it whenever either changes.
//
// It is pure: it reads no kernel and keeps no state but a cache of rule lists. It knows
// nothing of how a dataplane renders its values.
package plan
