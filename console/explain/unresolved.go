package explain

import (
	"net/netip"

	"github.com/namegate/namegate/policy"
)

// maxByPeers bounds the notes about rules that decide by what a name leads to.
const maxByPeers = 3

// byPeers notes, where no address of a name can be known, the rules that decide first if the name
// leads to one of their peers: those of cluster policies, and for a name that nothing allows those of
// NetworkPolicies.
func (in *inquiry) byPeers(matches []*policy.Match, resolves bool) {
	if !in.f.Unresolved {
		return
	}
	f := in.blank(netip.Addr{})
	f.Enter(matches...)
	allowed, by := policy.EvaluateAny(in.f.View, in.f.Snapshot, f)
	n := 0
	for _, s := range asked(policy.Steps(in.f.View, in.f.Snapshot, &f), false) {
		r := s.Rule
		ofNetworkPolicy := r.Tier == policy.Namespace
		if r == by || ofNetworkPolicy && allowed {
			break
		}
		kind := r.Peer.Kind
		if !s.Asked || r.Broken || kind != policy.PeerPods && kind != policy.PeerNetworks && kind != policy.PeerPorts {
			continue
		}
		switch n++; {
		case n > maxByPeers:
			in.note("more rules decide by what the name leads to")
			return
		case ofNetworkPolicy:
			in.note("what the name leads to may be reached by NetworkPolicy %s (%s)%s", r.Policy, r.Path, in.place(r, r.Path))
		case resolves:
			in.note("%s (%s) decides first where the name leads to %s", in.ruleText(r), r.Action, r.Peer.Key)
		}
	}
}

// place says where a rule is written, for facts that are made of manifests.
func (in *inquiry) place(r *policy.Rule, path string) string {
	if in.f.Place == nil {
		return ""
	}
	return in.f.Place(r, path)
}
