package dataplane

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
)

// Tiers are the rules of a subject in the tiers with an order, as the tables have them: the first
// that matches decides. Subjects with equal ones share what is made of them. They are immutable;
// nil are no rules.
type Tiers struct {
	// Tiers has no subjects. Its ID is a word of hexadecimal digits.
	layout.Tiers
	// Peers are the peers of the rules, Listed those of rules that are, and Entries the rules that addresses are
	// granted for, each once, sorted.
	Peers, Listed []policy.Peer
	Entries       []policy.RuleID
	// Node are the rules of the node in place of those of a pod, and Yielding the peers to which its failsafes yield.
	Node     layout.NodeTraffic
	Yielding []policy.Peer
}

// TierRule is one rule with its peer. Listed: it accepts, and asks the set of the peer that rule lists have.
type TierRule struct {
	*layout.TierRule
	Peer   policy.Peer
	Listed bool
	sum    [sha256.Size]byte
}

// actions are those of rules that deny with an answer, by the words of policies.
var actions = [...]layout.Action{policy.Accept: layout.Accept, policy.Deny: layout.Reject, policy.Pass: layout.Pass}

// NewTierRule returns a rule for lists, which share it: about a peer or, with entries and no peer,
// about the addresses that are granted for that rule, as dialled. Drop: it denies without an answer. One that requires
// the server name allows nothing here: it denies what is not led to the relay.
func NewTierRule(peer policy.Peer, entries policy.RuleID, ports policy.PortSet, action policy.Action, drop bool) TierRule {
	r := TierRule{TierRule: &layout.TierRule{Peers: PeersName(peer), Entries: string(entries), Ports: Ports(ports), Action: actions[action]}, Peer: peer}
	if drop {
		r.Action = layout.Drop
	}
	if r.Led = entries.ServerName(); r.Led {
		r.Action = layout.Reject
	}
	r.sum = sha256.Sum256(fmt.Appendf(nil, "%s %s %d %s", r.Peers, ports, r.Action, entries))
	return r
}

// NewTiers makes the tiers of a subject, nil of no rules that count: without a Namespace
// tier, a subject that rules select is not nil. checked are the rules of the Namespace tier that require the server name.
func NewTiers(admin, namespaceDeny, checked, baseline []TierRule, namespace, dns bool) *Tiers {
	if !namespace {
		namespaceDeny, checked = nil, nil
	} else if baseline = nil; len(admin)+len(namespaceDeny)+len(checked) == 0 {
		return nil
	}
	t := &Tiers{Tiers: layout.Tiers{Namespace: namespace, DNS: dns}}
	lists := t.complete(fmt.Append(nil, namespace, dns, len(admin), " ", len(checked), " "), admin, namespaceDeny, checked, baseline)
	t.Admin, t.NamespaceDeny, t.Checked, t.Baseline = lists[0], lists[1], lists[2], lists[3]
	return t
}

// NewIngress makes the rules for connections to a subject. accepts are those of its Namespace tier, which are asked in
// place of baseline where there is one.
func NewIngress(admin, accepts, baseline []TierRule, namespace bool) *Tiers {
	if namespace {
		baseline = nil
	}
	t := &Tiers{Tiers: layout.Tiers{Namespace: namespace}}
	lists := t.complete(fmt.Append(nil, "ingress", namespace, len(admin), " "), admin, accepts, baseline)
	t.Admin, t.Accepts, t.Baseline = lists[0], lists[1], lists[2]
	return t
}

// NodeList are rules of the node about packets by the same interfaces.
type NodeList struct {
	Traffic    policy.Traffic
	Ingress    bool
	Interfaces []string
	Rules      []TierRule
}

// NewNode makes the rules of the node. yielding are the peers to which its failsafes yield.
func NewNode(yielding []policy.Peer, lists ...NodeList) *Tiers {
	t := &Tiers{Yielding: yielding}
	text, rules := fmt.Append(nil, "node", yielding), make([][]TierRule, len(lists))
	for i, l := range lists {
		text, rules[i] = fmt.Appendf(text, "%v %v %q %d ", l.Traffic, l.Ingress, l.Interfaces, len(l.Rules)), l.Rules
	}
	for i, of := range t.complete(text, rules...) {
		l := &t.Node[lists[i].Traffic]
		to := &l.Egress
		if lists[i].Ingress {
			to = &l.Ingress
		}
		*to = append(*to, layout.NodeList{Interfaces: lists[i].Interfaces, Rules: of})
	}
	return t
}

// complete fills in what is made of the rules, which it returns as the tables have them. text tells apart what the rules do not.
func (t *Tiers) complete(text []byte, lists ...[]TierRule) [][]*layout.TierRule {
	out, all := make([][]*layout.TierRule, len(lists)), 0
	for _, rules := range lists {
		all += len(rules)
	}
	text = slices.Grow(text, all*sha256.Size)
	for n, rules := range lists {
		out[n] = slices.Grow(out[n], len(rules))
		for i := range rules {
			r := &rules[i]
			out[n], text = append(out[n], r.TierRule), append(text, r.sum[:]...)
			if r.Listed {
				t.Listed = append(t.Listed, r.Peer)
			} else if r.Peer.Kind != policy.PeerAnywhere {
				t.Peers = append(t.Peers, r.Peer)
			}
			if r.Entries != "" {
				t.Entries = append(t.Entries, policy.RuleID(r.Entries))
			}
		}
	}
	slices.SortFunc(t.Peers, policy.Peer.Compare)
	slices.Sort(t.Entries)
	t.ID, t.Peers, t.Entries = idOf(text), slices.Compact(t.Peers), slices.Compact(t.Entries)
	return out
}

// Same tells whether two are equal.
func (t *Tiers) Same(o *Tiers) bool { return t == o || t != nil && o != nil && t.ID == o.ID }

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
