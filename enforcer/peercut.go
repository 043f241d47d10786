package enforcer

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/policy"
)

// lostPeers is what of a pod's peers is gone: addresses, or networks, of which nobody
// says where their connections are: then all of the pod's are looked at.
type lostPeers struct {
	addrs map[netip.Addr]bool
	all   bool
}

// reviewLost notes the pods of a plan that ask one of the sets, of which all that is
// beyond is about to go.
func (e *Enforcer) reviewLost(plan dataplane.Subjects, sets []*peerSet) {
	by := map[policy.Peer]*lostPeers{}
	for _, s := range sets {
		l := by[s.key.peer]
		if l == nil {
			l = &lostPeers{addrs: map[netip.Addr]bool{}}
			by[s.key.peer] = l
		}
		for en := range s.beyond {
			l.addrs[en.Addr] = true
			l.all = l.all || s.key.peer.Kind == policy.PeerNetworks
		}
	}
	for ref, p := range plan {
		if p.Peers == nil || e.rejudge[ref] {
			continue
		}
		for _, a := range p.Peers.Rules {
			if l := by[a.Match.Peer]; l != nil {
				e.review[ref] = e.review[ref].and(l)
			}
		}
	}
}

// and returns what is gone by either.
func (l lostPeers) and(o *lostPeers) lostPeers {
	if l.addrs == nil {
		return *o // shared by all that lost nothing else
	}
	both := lostPeers{maps.Clone(l.addrs), l.all || o.all}
	maps.Copy(both.addrs, o.addrs)
	return both
}

// rejudgeLess notes the pods whose NetworkPolicies allow them less than the last plan's,
// or than an earlier agent's chains say, and those whose connections it had yet to judge.
func (e *Enforcer) rejudgeLess(last, plan dataplane.Subjects) {
	owed := &lostPeers{addrs: e.inherited.owed}
	for ref, p := range plan {
		if p.Peers != nil && len(owed.addrs) > 0 {
			e.review[ref] = e.review[ref].and(owed)
		}
		if was := last[ref]; was != nil && !was.Peers.Within(p.Peers) {
			e.rejudge[ref] = true
		}
		for _, a := range p.Addrs {
			chain, had := e.inherited.peers[a]
			if e.inherited.owed[a] || had && e.inherited.same(a, ref) && !p.Peers.All() && (p.Peers == nil || listChain(p.Peers) != chain) {
				e.rejudge[ref] = true
			}
		}
	}
}

// flowsOf lists the admitted connections that are to be judged anew: all that pods
// began, by their address, and of others those to peers that they lost. Where it is
// about such peers alone the query names them.
func (e *Enforcer) flowsOf(whole map[netip.Addr]*dataplane.Subject, parts map[netip.Addr]lostPeers) ([]conntrack.Flow, error) {
	q := conntrack.Query{Mark: e.cfg.Mark, Mask: e.cfg.Mark, Sources: slices.Collect(maps.Keys(whole))}
	peers := map[netip.Addr]bool{}
	some := len(whole) == 0
	for a, lost := range parts {
		q.Sources = append(q.Sources, a)
		some = some && !lost.all
		maps.Copy(peers, lost.addrs)
	}
	if some {
		q.Peers = slices.Collect(maps.Keys(peers))
	}
	if len(q.Sources) == 0 {
		return nil, nil
	}
	return e.k.Flows.Flows(q)
}
