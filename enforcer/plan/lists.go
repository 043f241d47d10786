package plan

import (
	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/policy"
)

// Lists makes the rule lists of views, and keeps them: views that the same NetworkPolicies
// select share their rules, which are the same from one snapshot to the next as long as
// these are.
type Lists map[**policy.Rule]keptList

type keptList struct {
	rules []*policy.Rule
	list  *dataplane.RuleList
	used  bool
}

func (m Lists) of(rules []*policy.Rule) *dataplane.RuleList {
	if len(rules) == 0 {
		return nil
	}
	k, there := m[&rules[0]]
	if !there || len(k.rules) != len(rules) {
		k = keptList{rules: rules, list: listOf(rules)}
	}
	k.used = true
	m[&rules[0]] = k
	return k.list
}

// listOf makes the list of a view's rules.
func listOf(rules []*policy.Rule) *dataplane.RuleList {
	all := make([]dataplane.Rule, len(rules))
	for i := range rules {
		all[i] = dataplane.Rule{Match: dataplane.Match{Peer: rules[i].Peer, Ports: rules[i].Ports}, Action: rules[i].Action}
	}
	return dataplane.NewRuleList(all)
}

// Prune forgets the lists that were not asked for since the last time.
func (m Lists) Prune() {
	for first, k := range m {
		if k.used {
			k.used = false
			m[first] = k
		} else {
			delete(m, first)
		}
	}
}
