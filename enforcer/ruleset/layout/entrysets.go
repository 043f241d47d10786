package layout

import (
	"github.com/namegate/namegate/enforcer/ruleset/lists"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
)

// EntrySets are the sets of entries with a name, "subject . dialled address", that rules by name ask. Their
// elements are no part of a state: the tables' Store writes them, and they end by their own timeouts.
func EntrySets(names ...string) (out []*nft.Set) {
	for _, name := range names {
		for _, f := range lists.Families {
			out = append(out, timedSet(timed.EntriesPrefix+name, f.Addr+" . "+f.Addr, f))
		}
	}
	return out
}

// timedSet is a set whose elements end. A size would have the kernel allocate the buckets for all
// elements at once: 2 MiB a set instead of 0.5 KiB (tried on Linux 6.18).
func timedSet(name, typ string, f lists.Family) *nft.Set {
	return &nft.Set{Name: name + "-" + f.Suffix, Comment: describe(name), Key: typ, Fill: nft.Timed}
}
