package enforcer

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/nftrules"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// addTiers renders the ordered rules of subjects for the nft tables.
func (e *Enforcer) addTiers(s *nft.State, subjects dataplane.Subjects) {
	s.Entries = entrySets(rulesOf(subjects))
	at, peers, rendered := map[string]int{}, map[policy.Peer]bool{}, map[*dataplane.Tiers]nft.Tiers{}
	places := 0
	for _, p := range subjects.Sorted() {
		if p.Tiers == nil || !p.Isolated {
			continue
		}
		i, there := at[p.Tiers.ID]
		if !there {
			i = len(s.Tiers)
			at[p.Tiers.ID] = i
			t, known := e.rendered[p.Tiers]
			if !known {
				t = nft.Tiers{ID: p.Tiers.ID, Admin: e.nftRules(p.Tiers.Admin), Baseline: e.nftRules(p.Tiers.Baseline), NamespaceDeny: e.nftRules(p.Tiers.NamespaceDeny), Namespace: p.Tiers.Namespace, DNS: p.Tiers.DNS}
			}
			rendered[p.Tiers] = t
			places += len(t.Admin) + len(t.NamespaceDeny) + len(t.Baseline)
			s.Tiers = append(s.Tiers, t)
			for _, peer := range p.Tiers.Peers {
				peers[peer] = true
			}
		}
		s.Tiers[i].Subjects = append(s.Tiers[i].Subjects, p.Addrs...)
	}
	if e.rendered = rendered; len(e.nftRule) > 2*places {
		clear(e.nftRule)
	}
	if len(s.Tiers) == 0 {
		return
	}
	for _, peer := range slices.SortedFunc(maps.Keys(peers), policy.Peer.Compare) {
		s.Peers = append(s.Peers, nftrules.PeerSet(nftrules.PeersName(peer), peer.Kind, e.members(peer)))
	}
}

// actions are those of rules that deny with an answer, by the words of policies.
var actions = [...]nft.Action{policy.Accept: nft.Accept, policy.Deny: nft.Reject, policy.Pass: nft.Pass}

// nftRules renders the rules of one tier.
func (e *Enforcer) nftRules(rules []*dataplane.TierRule) []*nft.TierRule {
	out := make([]*nft.TierRule, 0, len(rules))
	for _, r := range rules {
		rule := e.nftRule[r]
		if rule == nil {
			rule = &nft.TierRule{Entries: string(r.Entries), Action: actions[r.Action], Ports: nftrules.Ports(r.Match.Ports)}
			if r.Drop {
				rule.Action = nft.Drop
			}
			if peer := r.Match.Peer; peer.Kind != policy.PeerAnywhere {
				rule.Peers = nftrules.PeersName(peer)
			}
			e.nftRule[r] = rule
		}
		out = append(out, rule)
	}
	return out
}

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
		chains = e.tablesState(subjects).TierChains()
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
