package enforcer

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/flows"
	"github.com/namegate/namegate/enforcer/grants"
	"github.com/namegate/namegate/enforcer/plan"
	"github.com/namegate/namegate/enforcer/ruleset"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/kernel/conntrack"
	"github.com/namegate/namegate/policy"
)

// recheckDue takes the second look at connections, where that is due. A Commit does it by
// itself. Connections are judged by the plan in force: no snapshot may be between Prepare
// and Commit.
func (e *Enforcer) recheckDue(ctx context.Context) {
	if !e.apply.TryLock() {
		return
	}
	defer e.apply.Unlock()
	if e.snapshot == nil || e.snapshot != e.coming || !e.flows.Due() {
		return
	}
	if err := e.flows.Run(e.judge()); err != nil && ctx.Err() == nil {
		e.log.Error("connections that were admitted while others were cut are not looked at again; trying again", "error", err)
	}
}

// recheckChanged rechecks the connections of subjects that a snapshot allows less than the last plan, or whose ordered
// rules, or the peers of these, are others, and of new addresses of subjects with ordered rules: until the snapshot is
// in force, the Namespace tier alone judges these. After an earlier agent these are subjects in its recheck set, with
// another list, and all with ordered rules, but for rules that were in force already and have no peers that change: its
// chains may have admitted what a rule denies.
func (e *Enforcer) recheckChanged(s *policy.Snapshot, last, subjects dataplane.Subjects) {
	first := e.snapshot == nil
	var chains map[netip.Addr]string
	if first && haveTiers(subjects) {
		chains = ruleset.State(e.tablesInput(subjects, s)).TierChains()
	}
	moved := map[*dataplane.Tiers]bool{nil: false}
	var changed, some []netip.Addr
	for ref, p := range subjects {
		was := last[ref]
		if _, known := moved[p.Tiers]; !known {
			moved[p.Tiers] = slices.ContainsFunc(p.Tiers.Peers, func(peer policy.Peer) bool { return e.snapshot.PeerSet(peer) != s.PeerSet(peer) })
		}
		switch {
		case was != nil && (!was.Peers.Within(p.Peers) || !was.Tiers.Same(p.Tiers) || moved[p.Tiers]), first && e.recovered.narrows(p, chains):
			changed = append(changed, p.Addrs...)
		case !first && p.Tiers != nil:
			changed = append(changed, slices.DeleteFunc(slices.Clone(p.Addrs), func(a netip.Addr) bool { return was != nil && slices.Contains(was.Addrs, a) })...)
		}
		if p.Peers != nil {
			some = append(some, p.Addrs...)
		}
	}
	e.flows.Recheck(flows.PolicyChanged, changed)
	if len(e.recovered.recheck) > 0 {
		e.flows.Recheck(flows.PeersLost, some, slices.Collect(maps.Keys(e.recovered.recheck))...)
	}
}

// recheckRemoved rechecks the connections of addresses that are of no subject any more, by the next snapshot.
func (e *Enforcer) recheckRemoved(s *policy.Snapshot, last, subjects dataplane.Subjects) {
	by := map[flows.Reason][]netip.Addr{}
	for a, owner := range plan.Removed(last, subjects) {
		why := flows.PodRemoved
		if ref, _ := s.Pod(a); ref == owner {
			why = flows.Released
		}
		by[why] = append(by[why], a)
	}
	for why, addrs := range by {
		e.flows.Recheck(why, addrs)
	}
}

// recheckPeers rechecks the connections of a plan's pods to members of peers that a snapshot takes away, also from
// those that an earlier agent left in its tables.
func (e *Enforcer) recheckPeers(ctx context.Context, subjects dataplane.Subjects, s *policy.Snapshot) error {
	if e.snapshot != nil || !e.recovered.Tables {
		e.recheckLost(subjects, e.snapshot, s)
		return nil
	}
	if err := e.readPeers(ctx, subjects); err != nil {
		return err
	}
	lost := map[policy.Peer][]netip.Addr{}
	for p, found := range e.recovered.peers {
		lost[p] = ruleset.Lost(found, ruleset.PeerSet("", p.Kind, s.PeerSet(p)))
	}
	e.recheckMembers(subjects, lost)
	return nil
}

// readPeers reads the members of peers that an earlier agent left, once for each peer, before a write changes them.
// After an error it has all connections of subjects with peers judged again.
func (e *Enforcer) readPeers(ctx context.Context, subjects dataplane.Subjects) error {
	if e.snapshot != nil || !e.recovered.Tables {
		return nil
	}
	peers := slices.DeleteFunc(slices.Clone(ruleset.AskedPeers(subjects)), func(p policy.Peer) bool { _, known := e.recovered.peers[p]; return known })
	sets := make([]layout.PeerSet, len(peers))
	for i, p := range peers {
		sets[i] = ruleset.PeerSet(dataplane.ListPeersName(p), p.Kind, nil)
	}
	found, err := e.tablesInForce().ReadPeers(ctx, sets)
	if err != nil {
		for _, p := range subjects {
			if p.Peers != nil {
				e.flows.Recheck(flows.PolicyChanged, p.Addrs)
			}
		}
		return fmt.Errorf("read sets of peers: %w", err)
	}
	for i, p := range peers {
		e.recovered.peers[p] = found[i]
	}
	return nil
}

// recheckLost rechecks the connections of a plan's pods to members of peers that one snapshot has and the next has not.
func (e *Enforcer) recheckLost(subjects dataplane.Subjects, was, is *policy.Snapshot) {
	if was != nil && was != is {
		e.recheckMembers(subjects, ruleset.LostMembers(ruleset.AskedPeers(subjects), was, is))
	}
}

// recheckMembers has the connections of a plan's pods judged again to members that peers lose, or all where the
// members are networks.
func (e *Enforcer) recheckMembers(subjects dataplane.Subjects, lost map[policy.Peer][]netip.Addr) {
	pods := map[policy.Peer][]netip.Addr{}
	for _, p := range subjects {
		if p.Peers == nil {
			continue
		}
		for _, r := range p.Peers.Rules {
			if len(lost[r.Peer]) > 0 {
				pods[r.Peer] = append(pods[r.Peer], p.Addrs...)
			}
		}
	}
	for peer, addrs := range pods {
		if peer.Kind == policy.PeerNetworks {
			e.flows.Recheck(flows.PolicyChanged, addrs)
		} else {
			e.flows.Recheck(flows.PeersLost, addrs, lost[peer]...)
		}
	}
}

// connections hands over the connections that were answered: of pods those that were admitted, and those of the
// node, which need no admission.
func (e *Enforcer) connections(each func(grants.Connection)) error {
	hand := func(f *conntrack.Flow, source netip.Addr, idle time.Duration) {
		each(grants.Connection{Source: source, Dialled: f.Dst, Protocol: policy.Protocol(f.Protocol), Idle: idle})
	}
	err := e.k.Flows.Established(e.cfg.Mark, e.cfg.Mark, func(f *conntrack.Flow, idle time.Duration) { hand(f, f.Src.Addr(), idle) })
	node := e.renewing.Load()
	if err != nil || node == nil {
		return err
	}
	return e.k.Flows.Established(0, e.cfg.Mark, func(f *conntrack.Flow, idle time.Duration) {
		from := f.Src.Addr()
		if _, own := slices.BinarySearchFunc(node.Addrs, from, netip.Addr.Compare); !own {
			return
		}
		subject := policy.NodeSubjects[0]
		if from.Is6() {
			subject = policy.NodeSubjects[1]
		}
		hand(f, subject, idle)
	})
}

// noteRenewing notes the node of a snapshot if it renews addresses in use.
func (e *Enforcer) noteRenewing(s *policy.Snapshot) {
	var node *policy.Node
	if v := s.Node(); v != nil && v.Renews() {
		node = v.Node
	}
	e.renewing.Store(node)
}
