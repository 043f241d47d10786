package layout

import (
	"strings"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/policy"
)

// EntrySets are the sets of entries with a name, "subject . dialled address", that rules by name ask. Their
// elements are no part of a state: the tables' Store writes them, and they end by their own timeouts.
func EntrySets(names ...string) (out []*nft.Set) {
	for _, name := range names {
		for _, f := range families {
			out = append(out, timedSet(timed.EntriesPrefix+name, f.addr+" . "+f.addr, f))
		}
	}
	return out
}

// timedSet is a set whose elements end. A size would have the kernel allocate the buckets for all
// elements at once: 2 MiB a set instead of 0.5 KiB (tried on Linux 6.18).
func timedSet(name, typ string, f family) *nft.Set {
	return &nft.Set{Name: name + "-" + f.suffix, Comment: describe(name), Key: typ, Fill: nft.Timed}
}

// entryMatches renders a rule about what was dialled, without its verdict. A packet that matches
// uses the entry: the set is asked last.
func entryMatches(set string, ports []policy.PortRange, subject string) (out []string) {
	entry := subject + " . ct original %[2]s daddr"
	at := "@" + timed.EntriesPrefix + set + "-%[1]s "
	for _, p := range portLists(ports) {
		out = append(out, each(p.dialled()+entry+" "+at)...)
	}
	return out
}

// untracked renders rules for packets that another program exempted from tracking: what they
// dialled is what they reach.
func untracked(rules []string) (out []string) {
	words := strings.NewReplacer("ct original proto-dst", "th dport", "ct original ", "")
	for _, r := range rules {
		out = append(out, words.Replace(r))
	}
	return out
}
