package enforcer

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/policy"
)

// Ordinary NetworkPolicies allow a pod peers: what it really reaches is asked in sets
// that all pods with the same peers share. What a set holds is no grant: it has no
// deadline, and is whatever the last snapshot says.

// allowance is one thing that a pod may reach: peers, on ports.
type allowance struct {
	peer  policy.Peer
	ports policy.PortSet
}

func (a allowance) compare(b allowance) int {
	return cmp.Or(a.peer.Compare(b.peer), strings.Compare(string(a.ports), string(b.ports)))
}

// peerList is what NetworkPolicies allow a pod, each thing once, sorted. Pods with
// equal lists share a chain. It is immutable.
type peerList struct {
	allows []allowance
	chain  string // where packets of its pods go
}

// newPeerList makes a list of allowances, of which there may be several equal; nil of none.
func newPeerList(all []allowance) *peerList {
	// What may open nothing needs no rule.
	all = slices.DeleteFunc(all, func(a allowance) bool { return a.ports == "" })
	if len(all) == 0 {
		return nil
	}
	if everything := (allowance{ports: policy.AnyPort}); slices.Contains(all, everything) {
		return &peerList{allows: []allowance{everything}, chain: chainAllow}
	}
	slices.SortFunc(all, allowance.compare)
	all = slices.Compact(all)
	var text strings.Builder
	for _, a := range all {
		text.WriteByte(byte(a.peer.Kind))
		text.WriteString(a.peer.Key + "\x00" + string(a.ports) + "\x00")
	}
	return &peerList{all, reachChain(text.String())}
}

// listOf makes the list of a view's rules.
func listOf(rules []*policy.Rule) *peerList {
	all := make([]allowance, len(rules))
	for i := range rules {
		all[i] = allowance{rules[i].Peer, rules[i].Ports}
	}
	return newPeerList(all)
}

// and returns a list of what either allows.
func (l *peerList) and(o *peerList) *peerList {
	switch {
	case o == nil || l == o:
		return l
	case l == nil:
		return o
	case l.chain == o.chain:
		return l
	}
	return newPeerList(slices.Concat(l.allows, o.allows))
}

// all tells whether the list allows everything.
func (l *peerList) all() bool { return l != nil && l.chain == chainAllow }

// chainName is "" for what allows nothing.
func (l *peerList) chainName() string {
	if l == nil {
		return ""
	}
	return l.chain
}

// within tells whether another list allows whatever this one does, by the same peers.
func (l *peerList) within(o *peerList) bool {
	if l == nil || o.all() || l == o {
		return true
	}
	return o != nil && !slices.ContainsFunc(l.allows, func(a allowance) bool {
		_, there := slices.BinarySearchFunc(o.allows, a, allowance.compare)
		return !there
	})
}

// peerLists makes the lists of views, and keeps them: views that the same
// NetworkPolicies select share their rules, which are the same from one snapshot to
// the next as long as these are.
type peerLists map[**policy.Rule]keptList

type keptList struct {
	rules []*policy.Rule
	list  *peerList
	used  bool
}

func (m peerLists) of(rules []*policy.Rule) *peerList {
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

// prune forgets the lists that were not asked for since the last time.
func (m peerLists) prune() {
	for first, k := range m {
		if k.used {
			k.used = false
			m[first] = k
		} else {
			delete(m, first)
		}
	}
}

// reaches tells whether a plan's pod may reach something, after the translation of
// Services, by its NetworkPolicies. A protocol without ports is asked for with port 0.
func (p *podPlan) reaches(proto policy.Protocol, at netip.AddrPort) bool {
	if p.peers == nil {
		return false
	}
	for _, a := range p.peers.allows {
		if !a.ports.Contains(proto, at.Port()) {
			continue
		}
		if a.peer.Kind == policy.PeerAnywhere || p.in.PeerSet(a.peer).Contains(at.Addr(), proto, at.Port()) {
			return true
		}
	}
	return false
}
