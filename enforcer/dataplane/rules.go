package dataplane

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
)

// Rule gives a match an action.
type Rule struct {
	Match  Match
	Action policy.Action
}

// Match is peers, by actual destination, on ports.
type Match struct {
	Peer  policy.Peer
	Ports policy.PortSet
}

func (r Rule) compare(o Rule) int {
	return cmp.Or(r.Match.Peer.Compare(o.Match.Peer), strings.Compare(string(r.Match.Ports), string(o.Match.Ports)))
}

// RuleList is rules, each once, sorted. Subjects with equal lists share their rendering
// in a dataplane. It is immutable; nil is the list that accepts nothing.
type RuleList struct {
	Rules []Rule
	// ID is equal for equal lists, and a word of hexadecimal digits; "" for the list that
	// accepts everything.
	ID string
}

// idDigits is the length of an ID: authors of NetworkPolicies choose the text of the
// rules, and must not find two lists with the same ID.
const idDigits = 16

// NewRuleList makes a list of rules, of which several may be equal; nil of none.
func NewRuleList(all []Rule) *RuleList {
	// A rule without ports opens nothing.
	all = slices.DeleteFunc(all, func(r Rule) bool { return r.Match.Ports == "" })
	if len(all) == 0 {
		return nil
	}
	if everything := (Rule{Match{Ports: policy.AnyPort}, policy.Accept}); slices.Contains(all, everything) {
		return &RuleList{Rules: []Rule{everything}}
	}
	slices.SortFunc(all, Rule.compare)
	all = slices.Compact(all)
	var text strings.Builder
	for _, r := range all {
		text.WriteByte(byte(r.Match.Peer.Kind))
		text.WriteString(r.Match.Peer.Key + "\x00" + string(r.Match.Ports) + "\x00")
	}
	return &RuleList{all, idOf([]byte(text.String()))}
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
func (l *RuleList) All() bool { return l != nil && l.ID == "" }

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
