package enforcer

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/kernel/ipset"
	"github.com/namegate/namegate/kernel/iptables"
	"github.com/namegate/namegate/policy"
)

// An agent may die after it has taken something back and before it has cut what that
// had opened; to the next one nothing looks amiss then. So addresses are in the kernel
// from before anything is taken back until that is done: the connections from each, and
// to each as a peer, are to be judged anew.

// owe notes addresses whose connections are to be judged anew.
func (e *Enforcer) owe(addrs []netip.Addr) error {
	return e.writeOwed(addrs, false, e.k.Sets.Add)
}

// settled forgets all that was owed.
func (e *Enforcer) settled() error {
	return e.writeOwed(slices.Collect(maps.Keys(e.owed)), true, e.k.Sets.Delete)
}

// writeOwed writes those of addresses that were owed before, or were not.
func (e *Enforcer) writeOwed(addrs []netip.Addr, before bool, write func(set string, entries ...ipset.Entry) error) error {
	for _, f := range ipVersions {
		var entries []ipset.Entry
		for _, a := range addrs {
			if versionOf(a) == f && e.owed[a] == before {
				entries = append(entries, ipset.Entry{Addr: a})
			}
		}
		if len(entries) == 0 {
			continue
		}
		name := setPrefix(f) + setOwed
		_, known := e.holds[name]
		delete(e.holds, name)
		if err := write(name, entries...); err != nil {
			e.doubtful = true
			return err
		}
		for _, en := range entries {
			if before {
				delete(e.owed, en.Addr)
			} else {
				e.owed[en.Addr] = true
			}
		}
		if known {
			e.holds[name] = e.owedOf(f)
		}
	}
	return nil
}

func (e *Enforcer) owedOf(f iptables.Family) (n int) {
	for a := range e.owed {
		if versionOf(a) == f {
			n++
		}
	}
	return n
}

// rejudgedAddrs are the addresses in a plan of the pods that are judged anew.
func (e *Enforcer) rejudgedAddrs(plan dataplane.Subjects) []netip.Addr {
	var out []netip.Addr
	for ref := range e.rejudge {
		if p := plan[ref]; p != nil {
			out = append(out, p.Addrs...)
		}
	}
	return out
}

// lostAddrs are those of what is beyond in sets that somebody asks, and in place of
// networks of the pods that lost them.
func (e *Enforcer) lostAddrs(plan dataplane.Subjects, sets []*peerSet) []netip.Addr {
	var out []netip.Addr
	for ref, lost := range e.review {
		if p := plan[ref]; p != nil && lost.all {
			out = append(out, p.Addrs...)
		}
	}
	for _, s := range sets {
		if s.key.peer.Kind == policy.PeerNetworks || len(e.review) == 0 {
			continue
		}
		for en := range s.beyond {
			out = append(out, en.Addr)
		}
	}
	return out
}

// inheritOwed reads what an earlier agent owed: it is owed still.
func (e *Enforcer) inheritOwed() (map[netip.Addr]bool, error) {
	for _, f := range ipVersions {
		entries, err := e.k.Sets.List(setPrefix(f) + setOwed)
		if err != nil {
			return nil, err
		}
		for _, en := range entries {
			e.owed[en.Addr] = true
		}
	}
	return maps.Clone(e.owed), nil
}
