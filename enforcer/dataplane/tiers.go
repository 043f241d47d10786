package dataplane

import (
	"fmt"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
)

// Tiers are the rules of a subject in the tiers with an order: the first that matches
// decides. Subjects with equal ones share what is made of them. They are immutable; nil
// are no rules.
type Tiers struct {
	Admin, Baseline []TierRule
	// Namespace: the Namespace tier exists, and Baseline is empty.
	Namespace bool
	// ID is equal for equal Tiers, and a word of hexadecimal digits.
	ID string
}

// TierRule is one rule. Drop: it denies without an answer. With Entries it matches the
// addresses that are granted for that rule, as dialled, and Match has its ports alone.
type TierRule struct {
	Rule
	Drop    bool
	Entries policy.RuleID
}

// NewTiers makes the tiers of a subject, nil of no rules that count: without a Namespace
// tier, a subject that rules select is not nil.
func NewTiers(admin, baseline []TierRule, namespace bool) *Tiers {
	if namespace {
		baseline = nil
		if len(admin) == 0 {
			return nil
		}
	}
	var text strings.Builder
	for i, rules := range [][]TierRule{admin, baseline} {
		fmt.Fprintf(&text, "%d %t\n", i, namespace)
		for _, r := range rules {
			fmt.Fprintf(&text, "%d %q %q %d %t %s\n", r.Match.Peer.Kind, r.Match.Peer.Key, r.Match.Ports, r.Action, r.Drop, r.Entries)
		}
	}
	return &Tiers{admin, baseline, namespace, idOf(text.String())}
}

// Same tells whether two are equal.
func (t *Tiers) Same(o *Tiers) bool { return t == o || t != nil && o != nil && t.ID == o.ID }

// Peers are the peers of the rules, each once.
func (t *Tiers) Peers() (out []policy.Peer) {
	if t == nil {
		return nil
	}
	for _, r := range slices.Concat(t.Admin, t.Baseline) {
		if r.Match.Peer.Kind != policy.PeerAnywhere {
			out = append(out, r.Match.Peer)
		}
	}
	slices.SortFunc(out, policy.Peer.Compare)
	return slices.Compact(out)
}

// Entries are the rules that addresses are granted for, sorted.
func (t *Tiers) Entries() (out []policy.RuleID) {
	if t == nil {
		return nil
	}
	for _, r := range slices.Concat(t.Admin, t.Baseline) {
		if r.Entries != "" {
			out = append(out, r.Entries)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
