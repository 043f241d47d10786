package layout

import "github.com/namegate/namegate/enforcer/ruleset/lists"

type (
	// TierRule is one rule.
	TierRule = lists.Rule
	// Action is its effect.
	Action = lists.Action
	// PeerSet is a set of destinations.
	PeerSet = lists.PeerSet
)

// The actions of rules.
const (
	Accept = lists.Accept
	Reject = lists.Reject
	Drop   = lists.Drop
	Pass   = lists.Pass
)

// dispatch makes what a state adds to the table inet.
type dispatch struct {
	*lists.Builder
	relays bool // the node has relays
}

// podWords are of what pods send.
var podWords = &lists.Words{Verdicts: [...]string{Accept: "goto admit", Reject: "goto denyreject", Drop: "goto denydrop"}, Named: namedChain, Subject: lists.Source, Peer: lists.Destination}

// list returns the items of pods' rules in order.
func (d *dispatch) list(rules []*TierRule, pass string) []*lists.Item {
	return d.List(podWords, rules, pass)
}

// untracked is list for untracked packets.
func (d *dispatch) untracked(rules []*TierRule, pass string) []*lists.Item {
	return d.Bare(podWords, rules, pass)
}
