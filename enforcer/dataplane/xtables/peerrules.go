package xtables

import (
	"slices"
	"strings"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
)

// renderList asks the peers of a list, ports before sets. What the kernel refused is
// not asked.
func (r ruleset) renderList(l *dataplane.RuleList) []string {
	var refused []string
	for _, rule := range l.Rules {
		if name := PeerSetName(rule.Match.Peer, r.family); rule.Match.Peer.Kind != policy.PeerAnywhere && r.refused[name] {
			refused = append(refused, name)
		}
	}
	chain := listChain(l)
	if k, there := r.keptLists[chain]; there && slices.Equal(k.refused, refused) {
		return k.rules
	}
	rules := []string{}
	for _, rule := range l.Rules {
		set := r.peerMatch(rule.Match.Peer, refused)
		if set == "" && rule.Match.Peer.Kind != policy.PeerAnywhere {
			continue
		}
		for _, m := range portMatches(rule.Match.Ports) {
			rules = append(rules, strings.Join(nonEmpty(m.proto, m.ports, set, "-g "+chainAllow), " "))
		}
	}
	if r.keptLists != nil {
		r.keptLists[chain] = listRules{refused, rules}
	}
	return rules
}

// listRules is a list's rules and which sets they leave out.
type listRules struct {
	refused []string
	rules   []string
}

// peerMatch matches one set, with a comment that describes it.
func (r ruleset) peerMatch(p policy.Peer, refused []string) string {
	if p.Kind == policy.PeerAnywhere {
		return ""
	}
	name, of := PeerSetName(p, r.family), "dst"
	if slices.Contains(refused, name) {
		return ""
	}
	if p.Kind == policy.PeerPorts {
		of = "dst,dst"
	}
	return "-m set --match-set " + name + " " + of + ` -m comment --comment "` + peerComment(p.Key) + `"`
}

// maxComment is how much of a key a rule's comment has: xt_comment takes 255 bytes.
const maxComment = 200

// peerComment is a key as iptables prints it unchanged: characters without escapes, and a
// space, without which there are no quotes.
func peerComment(key string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(" .,:;/_=*()<>{}|+-", r) {
			return r
		}
		return '_'
	}, key[:min(len(key), maxComment)])
	return strings.Join(append([]string{"to"}, strings.Fields(clean)...), " ")
}
