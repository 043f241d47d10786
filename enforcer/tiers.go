package enforcer

import (
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/policy"
)

// haveTiers tells whether a subject has ordered rules.
func haveTiers(subjects dataplane.Subjects) bool {
	for _, p := range subjects {
		if p.Tiers != nil {
			return true
		}
	}
	return false
}

// addrsWithTiers returns the addresses of subjects with ordered rules.
func addrsWithTiers(subjects dataplane.Subjects) (out []netip.Addr) {
	for _, p := range subjects {
		if p.Tiers != nil {
			out = append(out, p.Addrs...)
		}
	}
	return out
}

// tiersChanged returns the addresses of subjects whose ordered rules, or the peers of these,
// are others in a snapshot, and new addresses of subjects with ordered rules: until the
// snapshot is in force, the Namespace tier alone judges these. After an earlier agent these
// are all with ordered rules, but for rules that were in force already and have no peers that
// change: its chains may have admitted what a rule denies.
func (e *Enforcer) tiersChanged(s *policy.Snapshot, last, subjects dataplane.Subjects) (out []netip.Addr) {
	var chains map[netip.Addr]string
	if e.snapshot == nil && haveTiers(subjects) {
		chains = ruleset.State(e.tablesInput(subjects, s)).TierChains()
	}
	moved, others := map[*dataplane.Tiers]bool{}, map[policy.Peer]bool{}
	other := func(p policy.Peer) bool {
		changed, known := others[p]
		if !known {
			changed = e.snapshot.PeerSet(p) != s.PeerSet(p)
			others[p] = changed
		}
		return changed
	}
	for ref, p := range subjects {
		was := last[ref]
		if _, known := moved[p.Tiers]; !known {
			moved[p.Tiers] = p.Tiers != nil && slices.ContainsFunc(p.Tiers.Peers, other)
		}
		if e.snapshot == nil && p.Tiers != nil && !e.recovered.hadTiers(p, chains) || was != nil && (!was.Tiers.Same(p.Tiers) || moved[p.Tiers]) {
			out = append(out, p.Addrs...)
		} else if e.snapshot != nil && p.Tiers != nil {
			out = append(out, slices.DeleteFunc(slices.Clone(p.Addrs), func(a netip.Addr) bool { return was != nil && slices.Contains(was.Addrs, a) })...)
		}
	}
	return out
}
