package enforcer

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/dataplane/xtables"
	"github.com/namegate/namegate/enforcer/flows"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
)

// newQueue returns the queue of connections to judge again.
func (e *Enforcer) newQueue() *flows.Queue {
	debts := flows.Debts{Sets: countedSets{e}, IPv4: xtables.SetPrefix(iptables.IPv4) + xtables.SetOwed, IPv6: xtables.SetPrefix(iptables.IPv6) + xtables.SetOwed}
	return flows.New(e.k.Flows, debts, e.cfg.Mark, e.now)
}

// countedSets are the static sets, whose sizes are kept for drift detection. It belongs to
// the holder of apply.
type countedSets struct{ e *Enforcer }

func (c countedSets) List(name string) ([]ipset.Entry, error) { return c.e.k.Sets.List(name) }

func (c countedSets) Add(name string, entries ...ipset.Entry) error {
	return c.count(name, len(entries), c.e.k.Sets.Add(name, entries...))
}

func (c countedSets) Delete(name string, entries ...ipset.Entry) error {
	return c.count(name, -len(entries), c.e.k.Sets.Delete(name, entries...))
}

// count keeps the size of a set after a write.
func (c countedSets) count(name string, more int, err error) error {
	if err != nil {
		c.e.doubtful = true
		delete(c.e.holds, name)
	} else if _, known := c.e.holds[name]; known {
		c.e.holds[name] += more
	}
	return err
}

// recheckDue takes the second look at connections, where that is due. A Commit does it by
// itself. Connections are judged by the plan in force: no snapshot may be between Prepare
// and Commit.
func (e *Enforcer) recheckDue(ctx context.Context) {
	if !e.apply.TryLock() {
		return
	}
	defer e.apply.Unlock()
	if !e.flows.Due() || !e.whole || e.coming != e.snapshot {
		return
	}
	if err := e.flows.Run(e.judge()); err != nil && ctx.Err() == nil {
		e.log.Error("connections that were admitted while others were cut are not looked at again; trying again", "error", err)
	}
}

// recheckPod has the connections of a pod in force judged again, which may do less than
// before.
func (e *Enforcer) recheckPod(ref policy.PodRef) {
	if p := e.plan[ref]; p != nil {
		e.flows.Recheck(flows.PolicyChanged, p.Addrs)
	}
}

// recheckNarrowed has the connections of pods judged again whose NetworkPolicies allow
// them less than the last plan's, or than an earlier agent's chains say, and of the
// subjects that the earlier agent owed.
func (e *Enforcer) recheckNarrowed(last, plan dataplane.Subjects) {
	var changed, some []netip.Addr
	for ref, p := range plan {
		if p.Peers != nil {
			some = append(some, p.Addrs...)
		}
		if was := last[ref]; was != nil && !was.Peers.Within(p.Peers) {
			changed = append(changed, p.Addrs...)
		}
		for _, a := range p.Addrs {
			list, had := e.inherited.peers[a]
			if e.inherited.owed[a] || had && e.inherited.same(a, ref) && !p.Peers.All() && (p.Peers == nil || p.Peers.ID != list) {
				changed = append(changed, p.Addrs...)
			}
		}
	}
	e.flows.Recheck(flows.PolicyChanged, changed)
	if len(e.inherited.owed) > 0 {
		e.flows.Recheck(flows.PeersLost, some, slices.Collect(maps.Keys(e.inherited.owed))...)
	}
}

// recheckLost has the connections of a plan's pods judged again that ask one of the sets,
// whose stale members are about to go: the connections to these, or all where the members
// are networks.
func (e *Enforcer) recheckLost(plan dataplane.Subjects, sets []*peerSet) {
	stale := map[policy.Peer]bool{}
	var lost, some, all []netip.Addr
	for _, s := range sets {
		stale[s.key.peer] = true
		if s.key.peer.Kind == policy.PeerNetworks {
			continue
		}
		for en := range s.beyond {
			lost = append(lost, en.Addr)
		}
	}
	for _, p := range plan {
		if p.Peers == nil {
			continue
		}
		for _, a := range p.Peers.Rules {
			switch {
			case !stale[a.Match.Peer]:
			case a.Match.Peer.Kind == policy.PeerNetworks:
				all = append(all, p.Addrs...)
			default:
				some = append(some, p.Addrs...)
			}
		}
	}
	e.flows.Recheck(flows.PolicyChanged, all)
	if len(some) > 0 {
		e.flows.Recheck(flows.PeersLost, some, lost...)
	}
}
