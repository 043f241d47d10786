// Package entries keeps grants in the nft tables: those of rules by name of the tiers with an order as
// entries "subject . dialled address" of sets that all subjects with the rule share, and with the dataplane
// nftables those of the Namespace tier, in a set of each pod for single ports and in sets of addresses for
// other ports.
//
// Store is the dataplane.GrantWriter of package grants, and of the dataplane nftables. With another
// dataplane it hands the grants of the Namespace tier on. The package knows nothing of rules but their IDs, of matches and of deadlines.
package entries
