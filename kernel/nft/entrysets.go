package nft

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/namegate/namegate/kernel/nft/timed"
	"github.com/namegate/namegate/kernel/nft/wire"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"
)

// entrySet is the set of a family of entries, "subject . dialled address", that rules by name ask. Its
// elements are no part of a state: ApplyEntries writes them, and they end by their own timeouts.
func entrySet(name string, f family) *knftables.Set {
	return timedSet(timed.EntriesPrefix+name, f.addr+" . "+f.addr, f)
}

// timedSet is a set whose elements end. A size would have the kernel allocate the buckets for all
// elements at once: 2 MiB a set instead of 0.5 KiB (tried on Linux 6.18).
func timedSet(name, typ string, f family) *knftables.Set {
	return &knftables.Set{Name: name + "-" + f.suffix, Type: typ, Flags: []knftables.SetFlag{knftables.TimeoutFlag}}
}

// setForm is what a set or map holds, in the kernel's and nft's numbers.
type setForm struct{ keyType, keyLen, flags, valueType, valueLen uint32 }

// formOf is the form of a set in the kernel.
func formOf(set *knftables.Set) setForm {
	f := setForm{flags: wire.Flags(set)}
	f.keyType, f.keyLen = wire.KeyForm(wire.Parts(set.Type))
	return f
}

// A verdict in the kernel's numbers (NFT_DATA_VERDICT, struct nft_verdict).
const verdictType, verdictLen = 0xffffff00, 16

// mapFormOf is the form of a map in the kernel.
func mapFormOf(key, value string) setForm {
	f := setForm{flags: unix.NFT_SET_MAP, valueType: verdictType, valueLen: verdictLen}
	f.keyType, f.keyLen = wire.KeyForm(wire.Parts(key))
	if value != "verdict" {
		f.valueType, f.valueLen = wire.KeyForm(wire.Parts(value))
	}
	return f
}

// entryMatches renders a rule about what was dialled, without its verdict. A packet that matches
// uses the entry: the set is asked last.
func entryMatches(set string, ports []PortRange, subject string) (out []string) {
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

// AddSets makes sets of entries and of grants ahead of a state that has them. The next state that does
// not removes them.
func (t *Tables) AddSets(ctx context.Context, entries []string, grants []GrantSet) error {
	sets := tierObjects{entries: entries, grants: grants}
	missing := sets.without(t.tiers, false)
	if len(missing.entries)+len(missing.grants) == 0 {
		return nil
	}
	if err := t.write(ctx, slices.Index(tableFamilies, knftables.InetFamily), change{added: missing}); err != nil {
		t.partial = true
		return fmt.Errorf("add sets to nft table %s %s: %w", knftables.InetFamily, TableName, err)
	}
	t.written = nil
	with := t.tiers
	with.entries, with.grants = slices.Concat(with.entries, missing.entries), slices.Concat(with.grants, missing.grants)
	for _, s := range missing.entries {
		with.key += "+" + s + " "
	}
	for _, s := range missing.grants {
		with.key += "+" + timed.GrantsPrefix + s.Name + " "
	}
	t.setTiers(with)
	return nil
}
