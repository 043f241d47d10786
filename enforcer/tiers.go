package enforcer

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// addTiers renders the ordered rules of subjects for the nft tables.
func (e *Enforcer) addTiers(s *nft.State, subjects dataplane.Subjects) {
	s.Entries = entrySets(rulesOf(subjects))
	at, peers, rendered := map[string]int{}, map[policy.Peer]bool{}, map[*dataplane.Tiers]nft.Tiers{}
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
				t = nft.Tiers{ID: p.Tiers.ID, Admin: tierRules(p.Tiers.Admin), Baseline: tierRules(p.Tiers.Baseline), Namespace: p.Tiers.Namespace, DNS: p.Tiers.DNS}
			}
			rendered[p.Tiers] = t
			s.Tiers = append(s.Tiers, t)
			for _, peer := range p.Tiers.Peers {
				peers[peer] = true
			}
		}
		s.Tiers[i].Subjects = append(s.Tiers[i].Subjects, p.Addrs...)
	}
	e.rendered = rendered
	if len(s.Tiers) == 0 {
		return
	}
	for _, peer := range slices.SortedFunc(maps.Keys(peers), policy.Peer.Compare) {
		s.Peers = append(s.Peers, peersOf(peer, e.members(peer)))
	}
	s.Serving, s.DNS = e.servingDNS()
}

// actions are those of rules that deny with an answer, by the words of policies.
var actions = [...]nft.Action{policy.Accept: nft.Accept, policy.Deny: nft.Reject, policy.Pass: nft.Pass}

// tierRules renders the rules of one tier.
func tierRules(rules []dataplane.TierRule) []nft.TierRule {
	var out []nft.TierRule
	for _, r := range rules {
		rule := nft.TierRule{Entries: string(r.Entries), Action: actions[r.Action]}
		if r.Drop {
			rule.Action = nft.Drop
		}
		if r.Match.Peer.Kind != policy.PeerAnywhere {
			rule.Peers = peersName(r.Match.Peer)
		}
		if r.Match.Ports != policy.AnyPort {
			rule.Ports = []nft.PortRange{}
			for _, p := range r.Match.Ports.Ranges() {
				rule.Ports = append(rule.Ports, nft.PortRange{Protocol: p.Protocol.String(), First: p.First, Last: p.Last})
			}
		}
		out = append(out, rule)
	}
	return out
}

// peersName is the name of the set of peers, which is too long for two to share one.
func peersName(p policy.Peer) string {
	sum := sha256.Sum256([]byte(string(rune('0'+p.Kind)) + p.Key))
	return hex.EncodeToString(sum[:12])
}

// peersOf renders the members of peers; nil has none.
func peersOf(p policy.Peer, members *policy.PeerSet) nft.PeerSet {
	out := nft.PeerSet{Name: peersName(p)}
	switch p.Kind {
	case policy.PeerNetworks:
		out.Kind = nft.PeerNetworks
	case policy.PeerPorts:
		out.Kind = nft.PeerPorts
	}
	if members == nil {
		return out
	}
	out.Addrs, out.Networks = members.Addrs, members.Networks
	for _, at := range members.Ports {
		out.Ports = append(out.Ports, nft.PeerPort{Addr: at.Addr, Protocol: at.Protocol.String(), Port: at.Port})
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
// are others in a snapshot. After an earlier agent these are all with ordered rules, but for
// rules that were in force already and have no peers that change: its chains may have admitted
// what a rule denies.
func (e *Enforcer) tiersChanged(s *policy.Snapshot, last, subjects dataplane.Subjects) (out []netip.Addr) {
	var chains map[netip.Addr]string
	if e.snapshot == nil && haveTiers(subjects) {
		chains = e.tablesState(subjects).TierChains()
	}
	moved := map[*dataplane.Tiers]bool{}
	for ref, p := range subjects {
		was := last[ref]
		if _, known := moved[p.Tiers]; !known {
			moved[p.Tiers] = p.Tiers != nil && slices.ContainsFunc(p.Tiers.Peers, func(p policy.Peer) bool { return e.snapshot.PeerSet(p) != s.PeerSet(p) })
		}
		if e.snapshot == nil && p.Tiers != nil && !e.recovered.hadTiers(p, chains) || was != nil && (!was.Tiers.Same(p.Tiers) || moved[p.Tiers]) {
			out = append(out, p.Addrs...)
		}
	}
	return out
}
