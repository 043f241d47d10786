package plan

import (
	"iter"
	"maps"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
)

// Lists makes the rule lists of views and their tiers, and keeps them: views that the same
// policies select share their rules, which are the same from one snapshot to the next as
// long as these are.
type Lists struct {
	peers   map[**policy.Rule]*keptList
	tiers   map[tiersKey]*keptTiers
	ingress map[*policy.Ingress]*keptTiers
	rules   map[*policy.Rule]dataplane.TierRule // the zero rule for rules without effect
}

// NewLists returns lists of which none is kept.
func NewLists() Lists {
	return Lists{map[**policy.Rule]*keptList{}, map[tiersKey]*keptTiers{}, map[*policy.Ingress]*keptTiers{}, map[*policy.Rule]dataplane.TierRule{}}
}

type keptList struct {
	rules []*policy.Rule
	list  *dataplane.RuleList
	used  bool
}

// tiersKey is the cluster policies of a view, and what decides whether its Namespace tier
// exists.
type tiersKey struct {
	cluster         **policy.Index // nil for none
	deny, checked   **policy.Rule  // of the Namespace tier, nil for none
	enforced, peers bool
}

type keptTiers struct {
	tiers *dataplane.Tiers
	used  bool
}

func (m Lists) of(rules []*policy.Rule) *dataplane.RuleList {
	if len(rules) == 0 {
		return nil
	}
	k := m.peers[&rules[0]]
	if k == nil || len(k.rules) != len(rules) {
		k = &keptList{rules: rules, list: listOf(rules)}
		m.peers[&rules[0]] = k
	}
	k.used = true
	return k.list
}

// tiersOf returns the tiers of a view, one for all views with the same cluster policies.
func (m Lists) tiersOf(v *policy.View) *dataplane.Tiers {
	if !v.Ordered() && len(v.Rules.NamespaceDeny)+len(v.Rules.NamespaceChecked) == 0 {
		return nil
	}
	key := tiersKey{enforced: v.Enforced, peers: len(v.NetworkPolicies) > 0}
	if len(v.Cluster) > 0 {
		key.cluster = &v.Cluster[0]
	} else if v.Ordered() { // not made by the compiler
		return m.newTiers(v).tiers
	}
	if len(v.Rules.NamespaceDeny) > 0 {
		key.deny = &v.Rules.NamespaceDeny[0]
	}
	if len(v.Rules.NamespaceChecked) > 0 {
		key.checked = &v.Rules.NamespaceChecked[0]
	}
	k := m.tiers[key]
	if k == nil {
		k = m.newTiers(v)
		m.tiers[key] = k
	}
	k.used = true
	return k.tiers
}

func (m Lists) newTiers(v *policy.View) *keptTiers {
	k := &keptTiers{}
	admin, baseline, namespace, ordered := v.OrderedRules()
	audited := func(r *policy.Rule) bool { return r.Audit }
	deny, checked := slices.DeleteFunc(slices.Clone(v.Rules.NamespaceDeny), audited), slices.DeleteFunc(slices.Clone(v.Rules.NamespaceChecked), audited)
	if ordered || len(deny)+len(checked) > 0 {
		k.tiers = dataplane.NewTiers(m.tierRules(admin), m.tierRules(deny), m.tierRules(checked), m.tierRules(baseline), namespace, v.ImpliesDNS())
	}
	return k
}

// ingressOf returns the rules for connections to a view's pod, one for all views with the same.
func (m Lists) ingressOf(in *policy.Ingress) *dataplane.Tiers {
	if in == nil {
		return nil
	}
	k := m.ingress[in]
	if k == nil {
		k = &keptTiers{tiers: dataplane.NewIngress(m.tierRules(in.Admin), m.tierRules(in.Namespace), m.tierRules(in.Baseline), len(in.NetworkPolicies) > 0)}
		m.ingress[in] = k
	}
	k.used = true
	return k.tiers
}

// nodeOf returns rules of the node, nil if none is in force. With would they are those of wouldDeny.
func (m Lists) nodeOf(n *policy.Node, rules *policy.TrafficRules, would bool) *dataplane.Tiers {
	if rules == nil {
		return nil
	}
	var lists []dataplane.NodeList
	add := func(traffic policy.Traffic, ingress bool, rules []*policy.Rule) {
		switch {
		case !would:
			rules = slices.DeleteFunc(slices.Clone(rules), func(r *policy.Rule) bool { return r.Audit })
		case traffic == policy.Local && !ingress: // the kernel has no addresses of names that they accept
			return
		default:
			rules = wouldDeny(rules)
		}
		for len(rules) > 0 {
			end := slices.IndexFunc(rules, func(r *policy.Rule) bool { return !slices.Equal(r.On(n), rules[0].On(n)) })
			if end < 0 {
				end = len(rules)
			}
			lists = append(lists, dataplane.NodeList{Traffic: traffic, Ingress: ingress, Interfaces: rules[0].On(n), Rules: m.tierRules(rules[:end])})
			rules = rules[end:]
		}
	}
	for t := range policy.Untracked + 1 {
		add(t, true, rules.Of(t).Ingress)
		add(t, false, rules.Of(t).Egress)
	}
	if len(lists) == 0 {
		return nil
	}
	var listed []policy.Peer
	for _, r := range rules.Listing() {
		if (would || !r.Audit) && !r.Broken {
			listed = append(listed, r.Peer)
		}
	}
	return dataplane.NewNode(listed, lists...)
}

// wouldDeny returns rules that deny what those of Audit policies would deny first, nil if there are none. They accept what
// the others decide.
func wouldDeny(rules []*policy.Rule) (out []*policy.Rule) {
	last := 0
	for _, r := range rules {
		switch is := *r; {
		case !r.Audit && r.Broken && r.Action == policy.Deny:
			is.Broken, is.Peer, is.Ports = false, policy.Peer{}, policy.AnyPort
			fallthrough
		case !r.Audit:
			is.Action = policy.Accept
			r = &is
		case r.Action == policy.Deny:
			last = len(out) + 1
		}
		out = append(out, r)
	}
	return out[:last]
}

// tierRules makes the rules of one tier.
func (m Lists) tierRules(rules []*policy.Rule) []dataplane.TierRule {
	out := make([]dataplane.TierRule, 0, len(rules))
	for _, r := range rules {
		rule, known := m.rules[r]
		if !known {
			rule = tierRule(r)
			m.rules[r] = rule
		}
		if rule.TierRule != nil {
			out = append(out, rule)
		}
	}
	return out
}

// tierRule makes one rule. A rule with a broken part accepts nothing, and denies everything
// where it denies or passes.
func tierRule(r *policy.Rule) dataplane.TierRule {
	drop := r.Action == policy.Deny && r.Denied == policy.Drop
	switch {
	case r.Broken && r.Action != policy.Accept:
		return dataplane.NewTierRule(policy.Peer{}, "", policy.AnyPort, policy.Deny, drop)
	case r.Broken, r.Ports == "", r.Peer.Kind == policy.PeerNames && r.ID == "":
		return dataplane.TierRule{}
	case r.Peer.Kind == policy.PeerNames:
		return dataplane.NewTierRule(policy.Peer{}, r.ID, r.Ports, r.Action, drop)
	}
	rule := dataplane.NewTierRule(r.Peer, "", r.Ports, r.Action, drop)
	if rule.Listed = r.Tier == policy.Namespace && r.Action == policy.Accept && r.Peer.Kind != policy.PeerAnywhere; rule.Listed {
		rule.Peers = dataplane.ListPeersName(r.Peer)
	}
	return rule
}

// listOf makes the list of a view's rules, which accept.
func listOf(rules []*policy.Rule) *dataplane.RuleList {
	all := make([]dataplane.Rule, len(rules))
	for i, r := range rules {
		all[i] = dataplane.Rule{Peer: r.Peer, Ports: r.Ports}
	}
	return dataplane.NewRuleList(all)
}

// Prune forgets the lists that were not asked for since the last time.
func (m Lists) Prune() {
	maps.DeleteFunc(m.peers, func(_ **policy.Rule, k *keptList) bool { return !k.used })
	maps.DeleteFunc(m.tiers, func(_ tiersKey, k *keptTiers) bool { return !k.used })
	maps.DeleteFunc(m.ingress, func(_ *policy.Ingress, k *keptTiers) bool { return !k.used })
	for _, k := range m.peers {
		k.used = false
	}
	places := 0
	for k := range m.allTiers() {
		if k.used = false; k.tiers != nil {
			places += len(k.tiers.Admin) + len(k.tiers.NamespaceDeny) + len(k.tiers.Checked) + len(k.tiers.Accepts) + len(k.tiers.Baseline)
		}
	}
	if len(m.rules) > 2*places {
		clear(m.rules)
	}
}

// allTiers yields those of both directions.
func (m Lists) allTiers() iter.Seq[*keptTiers] {
	return func(yield func(*keptTiers) bool) {
		for _, k := range m.tiers {
			if !yield(k) {
				return
			}
		}
		for _, k := range m.ingress {
			if !yield(k) {
				return
			}
		}
	}
}
