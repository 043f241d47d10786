package ruleset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/namegate/namegate/enforcer/dataplane"
	"github.com/namegate/namegate/enforcer/ruleset/layout"
	"github.com/namegate/namegate/policy"
)

// addNode adds the rules of the node itself.
func addNode(s *layout.State, in *Input) {
	for _, p := range in.Subjects {
		s.NodeAudited = s.NodeAudited || p.Audited && p.Pod == policy.NodeRef(p.Pod.Name)
		if p.Node == nil {
			continue
		}
		rules, sets := nodeRules(in, p.Node, p.Tiers, "")
		s.Node = &layout.Node{ID: fmt.Sprintf("%#x %s", in.Accepted, p.Tiers.ID), Accepted: in.Accepted, NodeRules: rules}
		if p.Confirmed != nil {
			confirmed, of := nodeRules(in, p.Node, p.Confirmed, "confirmed-")
			s.Node.Confirmed, sets = &confirmed, append(sets, of...)
			s.Node.ID += " confirmed " + p.Confirmed.ID
		}
		if p.Would != nil {
			audited, of := nodeRules(in, p.Node, p.Would, "audited-")
			s.Node.Audited, sets = &audited, append(sets, of...)
			s.Node.ID += " audited " + p.Would.ID
		}
		s.Node.ID += " in"
		for _, f := range rules.In {
			s.Node.ID += " " + f.Peers
		}
		s.Node.ID += " out"
		for _, f := range rules.Out {
			s.Node.ID += " " + f.Peers
		}
		peers := p.Tiers.Peers
		if p.Would != nil {
			peers = slices.Concat(peers, p.Would.Peers)
		}
		for _, peer := range peers {
			sets = append(sets, PeerSet(dataplane.PeersName(peer), peer.Kind, in.tierMembers(peer)))
		}
		for _, set := range sets { // subjects may ask for the same
			if !slices.ContainsFunc(s.Peers, func(o layout.PeerSet) bool { return o.Name == set.Name }) {
				s.Peers = append(s.Peers, set)
			}
		}
	}
}

// nodeRules returns rules of the node behind a rule for each row of its failsafes, with the set of its networks, which is
// named by the row behind a prefix: other networks are no other rule. Rows that yield lack the addresses
// that the rules list.
func nodeRules(in *Input, n *policy.Node, tiers *dataplane.Tiers, prefix string) (rules layout.NodeRules, sets []layout.PeerSet) {
	rules.Traffic = tiers.Node
	for i := range n.Failsafes {
		f := &n.Failsafes[i]
		var networks netipx.IPSetBuilder
		for _, p := range f.Networks {
			networks.AddPrefix(p)
		}
		if f.Yields {
			networks.RemoveSet(listed(in, tiers.Yielding))
		}
		sum := sha256.Sum256([]byte(f.Name + ": " + f.PortText()))
		set := layout.PeerSet{Name: prefix + "failsafe-" + hex.EncodeToString(sum[:6]), Kind: policy.PeerNetworks}
		if all, err := networks.IPSet(); err == nil { // an error is of invalid prefixes, which are left out
			set.Networks = slices.SortedFunc(slices.Values(all.Prefixes()), netip.Prefix.Compare)
		}
		row := &layout.TierRule{Peers: set.Name, Ports: f.Ports, Action: layout.Accept}
		if f.In {
			rules.In = append(rules.In, row)
		}
		if f.Out {
			rules.Out = append(rules.Out, row)
		}
		sets = append(sets, set)
	}
	return rules, sets
}

// listed returns the members of peers, without wide networks.
func listed(in *Input, peers []policy.Peer) *netipx.IPSet {
	var all netipx.IPSetBuilder
	for _, peer := range peers {
		if set := in.tierMembers(peer); set != nil {
			for _, a := range set.Addrs {
				all.Add(a)
			}
			for _, n := range set.Networks {
				if !policy.Wide(n) {
					all.AddPrefix(n)
				}
			}
			for _, at := range set.Ports {
				all.Add(at.Addr)
			}
		}
	}
	listed, err := all.IPSet()
	if err != nil { // of invalid addresses, of which no peer set has any
		return &netipx.IPSet{}
	}
	return listed
}
