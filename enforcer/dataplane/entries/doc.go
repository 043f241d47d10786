// Package entries keeps the grants of rules by name of the tiers with an order in the nft
// tables, as entries "subject . dialled address" of sets that all subjects with the rule
// share.
//
// Store is the dataplane.GrantWriter of package grants: it hands the grants of the Namespace
// tier on to the node's dataplane. Package enforcer has it recover the entries that an
// earlier agent left, and compare and repair entries. An entry's comment begins with the ID
// of its pod, so that a pod inherits nothing with an address. The package knows nothing of
// rules but their IDs, of matches and of deadlines.
package entries
