package dataplane

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
)

// Rule accepts peers, by actual destination, on ports.
type Rule struct {
	Peer  policy.Peer
	Ports policy.PortSet
}

func (r Rule) compare(o Rule) int {
	return cmp.Or(r.Peer.Compare(o.Peer), strings.Compare(string(r.Ports), string(o.Ports)))
}

// RuleList is rules, each once, sorted. Subjects with equal lists share their rendering
// in a dataplane. It is immutable; nil is the list that accepts nothing.
type RuleList struct {
	Rules []Rule
	// ID is equal for equal lists, and a word of hexadecimal digits but for the list that
	// accepts everything.
	ID string
	// Rendered is the list in the tables.
	Rendered layout.RuleList
}

// everything is the ID of the list that accepts everything.
const everything = "all"

// ListPeersName is the name of a set of peers in rule lists: the members of those in ordered rules
// change at other times.
func ListPeersName(p policy.Peer) string {
	if p.Kind == policy.PeerAnywhere {
		return ""
	}
	return "list-" + PeersName(p)
}

// newRuleList makes a list of sorted rules.
func newRuleList(id string, rules ...Rule) *RuleList {
	l := &RuleList{Rules: rules, ID: id, Rendered: layout.RuleList{ID: id}}
	for _, r := range rules {
		l.Rendered.Rules = append(l.Rendered.Rules, &layout.TierRule{Action: layout.Accept, Peers: ListPeersName(r.Peer), Ports: Ports(r.Ports)})
	}
	return l
}

// idDigits is the length of an ID: authors of NetworkPolicies choose the text of the
// rules, and must not find two lists with the same ID.
const idDigits = 16

// NewRuleList makes a list of rules, of which several may be equal; nil of none.
func NewRuleList(all []Rule) *RuleList {
	// A rule without ports opens nothing.
	all = slices.DeleteFunc(all, func(r Rule) bool { return r.Ports == "" })
	if len(all) == 0 {
		return nil
	}
	if any := (Rule{Ports: policy.AnyPort}); slices.Contains(all, any) {
		return newRuleList(everything, any)
	}
	slices.SortFunc(all, Rule.compare)
	all = slices.Compact(all)
	var text strings.Builder
	for _, r := range all {
		text.WriteByte(byte(r.Peer.Kind))
		text.WriteString(r.Peer.Key + "\x00" + string(r.Ports) + "\x00")
	}
	return newRuleList(idOf([]byte(text.String())), all...)
}

// idOf returns the ID of rules that have a text.
func idOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:idDigits]
}

// Union returns a list of the rules of either.
func (l *RuleList) Union(o *RuleList) *RuleList {
	switch {
	case o == nil || l == o:
		return l
	case l == nil:
		return o
	case l.ID == o.ID:
		return l
	}
	return NewRuleList(slices.Concat(l.Rules, o.Rules))
}

// All tells whether the list accepts everything.
func (l *RuleList) All() bool { return l != nil && l.ID == everything }

// Within tells whether another list accepts whatever this one does, by the same peers.
func (l *RuleList) Within(o *RuleList) bool {
	if l == nil || o.All() || l == o {
		return true
	}
	return o != nil && !slices.ContainsFunc(l.Rules, func(r Rule) bool {
		_, there := slices.BinarySearchFunc(o.Rules, r, Rule.compare)
		return !there
	})
}
