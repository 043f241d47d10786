package explain

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"

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
			in.note("what the name leads to may be reached by %s", in.peerRuleText(r))
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

// notReached answers for a pod that no rule with peers allows.
func (in *inquiry) notReached(what string, a netip.Addr, r reach) {
	in.settle(Denied, "policies isolate the pod for egress, and %s", in.unallowed(what, a))
	in.notPermitted(a, r)
	if len(in.f.View.Policies) > 0 {
		in.note("its rules for names count where the pod resolves a name that leads to %s; `namegate check --to NAME` asks that", what)
	}
}

// unknownEnd returns the rule for networks that makes the answer about an address of a pod uncertain; nil for none.
func (in *inquiry) unknownEnd(a netip.Addr, r reach) *policy.Rule {
	if !slices.Contains(in.f.Unknown, a) {
		return nil
	}
	known, unknown := in.direct(a, nil), in.blank(netip.Addr{})
	return byNetwork(policy.Steps(in.f.View, in.f.Snapshot, &known.Flow), policy.Steps(in.f.View, in.f.Snapshot, &unknown), r.passed > 0, cmp.Or(r.by, r.deniedBy))
}

// The keys of peers with networks, or a hash of them, and with every address of a family.
var (
	someNetworks = regexp.MustCompile(`[\d:]/\d+|sha256:`)
	everyAddress = regexp.MustCompile(`[\d:]/0(,|;|$)`)
)

// byNetwork returns a rule for networks that may decide otherwise by the address of a pod that is not known; nil for
// none. known are the steps with the address that stands for it, unknown those without one, and by decides.
func byNetwork(known, unknown []policy.Step, allowed bool, by *policy.Rule) *policy.Rule {
	var pass *policy.Rule
	for _, s := range unknown {
		r := s.Rule
		network := !r.Broken && (r.Peer.Kind == policy.PeerNetworks || r.Peer.Kind == policy.PeerPorts) &&
			someNetworks.MatchString(r.Peer.Key) && !everyAddress.MatchString(r.Peer.Key)
		switch {
		case !s.Asked || pass != nil && pass.Tier == r.Tier:
		case network && (r == by || r.Action == policy.Pass || (r.Action == policy.Accept) != allowed):
			return r
		case r == by:
			return nil
		case r.Action == policy.Pass && slices.ContainsFunc(known, func(k policy.Step) bool { return k.Rule == r && k.Asked }):
			pass = r
		}
	}
	return nil
}

// unknownAddress answers where a rule decides by an address that is not known.
func (in *inquiry) unknownAddress(what string, by *policy.Rule) {
	in.settle(Unknown, "%s decides by the address of %s, which the manifests do not have; add that pod as `kubectl get pod -o yaml` prints it", in.peerRuleText(by), what)
}
