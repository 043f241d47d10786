package dataplane

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"

	"github.com/namegate/namegate/policy"
)

// Tiers are the rules of a subject in the tiers with an order: the first that matches
// decides. Subjects with equal ones share what is made of them. They are immutable; nil
// are no rules.
type Tiers struct {
	Admin, Baseline []*TierRule
	// NamespaceDeny are rules that deny, at the head of the Namespace tier.
	NamespaceDeny []*TierRule
	// Namespace: the Namespace tier exists, and Baseline is empty. Else NamespaceDeny is.
	Namespace bool
	// DNS to the resolvers comes before the rules.
	DNS bool
	// ID is equal for equal Tiers, and a word of hexadecimal digits.
	ID string
	// Peers are the peers of the rules, and Entries the rules that addresses are granted for,
	// each once, sorted.
	Peers   []policy.Peer
	Entries []policy.RuleID
}

// TierRule is one rule. Drop: it denies without an answer. With Entries it matches the
// addresses that are granted for that rule, as dialled, and Match has its ports alone. Lists
// share it, and it is immutable.
type TierRule struct {
	Rule
	Drop    bool
	Entries policy.RuleID
	sum     [sha256.Size]byte
}

// Sealed returns the rule, ready for lists.
func (r TierRule) Sealed() *TierRule {
	b := strconv.AppendBool([]byte{byte(r.Match.Peer.Kind), byte(r.Action)}, r.Drop)
	b = append(append(b, r.Match.Peer.Key...), 0)
	b = append(append(b, r.Match.Ports...), 0)
	r.sum = sha256.Sum256(append(b, r.Entries...))
	return &r
}

// NewTiers makes the tiers of a subject, nil of no rules that count: without a Namespace
// tier, a subject that rules select is not nil.
func NewTiers(admin, namespaceDeny, baseline []*TierRule, namespace, dns bool) *Tiers {
	if !namespace {
		namespaceDeny = nil
	} else if baseline = nil; len(admin)+len(namespaceDeny) == 0 {
		return nil
	}
	text := make([]byte, 0, (len(admin)+len(namespaceDeny)+len(baseline)+1)*sha256.Size)
	text = fmt.Append(text, namespace, dns, len(admin), " ")
	for _, rules := range [][]*TierRule{admin, namespaceDeny, baseline} {
		for _, r := range rules {
			text = append(text, r.sum[:]...)
		}
	}
	return &Tiers{admin, baseline, namespaceDeny, namespace, dns, idOf(text), peersOf(admin, baseline), entriesOf(admin, baseline)}
}

// Same tells whether two are equal.
func (t *Tiers) Same(o *Tiers) bool { return t == o || t != nil && o != nil && t.ID == o.ID }

// peersOf returns the peers of rules, each once, sorted.
func peersOf(admin, baseline []*TierRule) (out []policy.Peer) {
	for _, rules := range [][]*TierRule{admin, baseline} {
		for i := range rules {
			if rules[i].Match.Peer.Kind != policy.PeerAnywhere {
				out = append(out, rules[i].Match.Peer)
			}
		}
	}
	slices.SortFunc(out, policy.Peer.Compare)
	return slices.Compact(out)
}

// entriesOf returns the rules that addresses are granted for, each once, sorted.
func entriesOf(admin, baseline []*TierRule) []policy.RuleID {
	out := make([]policy.RuleID, 0, len(admin)+len(baseline))
	for _, rules := range [][]*TierRule{admin, baseline} {
		for i := range rules {
			if rules[i].Entries != "" {
				out = append(out, rules[i].Entries)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// UnionOf returns what either of two sorted lists has, sorted, and one of the lists itself
// where that has all.
func UnionOf(a, b []policy.RuleID) []policy.RuleID {
	if len(a) < len(b) {
		a, b = b, a
	}
	var out []policy.RuleID // nil while a has all of b
	i := 0
	for n, id := range b {
		from := i
		for i < len(a) && a[i] < id {
			i++
		}
		there := i < len(a) && a[i] == id
		if out == nil && !there {
			out, from = make([]policy.RuleID, 0, len(a)+len(b)-n), 0
		}
		if out != nil {
			out = append(out, a[from:i]...)
			if !there {
				out = append(out, id)
			}
		}
	}
	if out == nil {
		return a
	}
	return append(out, a[i:]...)
}
