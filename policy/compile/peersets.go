package compile

import (
	"slices"

	"github.com/namegate/namegate/policy"
	"github.com/namegate/namegate/policy/peers"
)

// liveSet is the set of a peer that some view has.
type liveSet struct {
	*peers.Set
	used uint64 // the compile in which it was asked for last
	kept uint64 // the last one in which there was room for it
}

// liveSet returns the set of a peer, one for all views.
func (c *Compiler) liveSet(spec *peers.Spec) *liveSet {
	l := c.sets[spec.Peer]
	if l == nil {
		l = &liveSet{Set: peers.NewSet(spec)}
		c.sets[spec.Peer] = l
		c.asked, c.sorted, c.came = nil, nil, append(c.came, spec)
	}
	return l
}

// indexPeers brings the pod index up to date, if a view asks for pods.
func (c *Compiler) indexPeers(in Input, s *draft) {
	c.dropUnused()
	came, went := c.came, c.went
	c.came, c.went = nil, nil
	if !slices.ContainsFunc(c.asked, func(l *liveSet) bool { return l.Spec.Kind != policy.PeerNetworks }) {
		c.index = nil // no set selects pods
		return
	}
	if c.index == nil {
		c.index, came, went = peers.NewIndex(), nil, nil
		for _, l := range c.asked {
			came = append(came, l.Spec)
		}
	}
	c.index.Want(came, went)
	c.index.Update(c.number, in.Namespaces, s.pods, in.Remote, in.Nodes)
}

// fillPeerSets fills in the peer sets of s that its views have.
func (c *Compiler) fillPeerSets(s *draft) {
	kept := 0
	for _, l := range c.asked {
		if l.kept == c.number {
			kept++
		} else {
			l.Forget() // nothing keeps it up to date
		}
	}
	if c.sorted == nil || kept != len(c.sorted) || slices.ContainsFunc(c.sorted, func(l *liveSet) bool { return l.kept != c.number }) {
		c.sorted = make([]*liveSet, 0, kept)
		for _, l := range c.asked {
			if l.kept == c.number {
				c.sorted = append(c.sorted, l)
			}
		}
		slices.SortFunc(c.sorted, func(a, b *liveSet) int { return a.Spec.Compare(b.Spec.Peer) })
		c.peerSets = nil
	}
	for _, l := range c.sorted {
		if last := l.Members(); l.Update(c.index) != last {
			c.peerSets = nil
		}
	}
	if c.peerSets == nil {
		c.peerSets = make([]*policy.PeerSet, len(c.sorted))
		for i, l := range c.sorted {
			c.peerSets[i] = l.Members()
		}
	}
	s.PeerSets = c.peerSets
}

// dropUnused removes the sets that no view of the running compile has.
func (c *Compiler) dropUnused() {
	c.dropUnusedCluster()
	c.egress.forget(c.number)
	c.ingress.forget(c.number)
	for r := range c.netRules() {
		for _, l := range r.sets {
			l.used = c.number
		}
	}
	if c.asked != nil && !slices.ContainsFunc(c.asked, func(l *liveSet) bool { return l.used != c.number }) {
		return
	}
	c.asked, c.sorted = make([]*liveSet, 0, len(c.sets)), nil
	for peer, l := range c.sets {
		if l.used != c.number {
			delete(c.sets, peer)
			c.went = append(c.went, l.Spec)
		} else {
			c.asked = append(c.asked, l)
		}
	}
}
