package explain

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/policy"
)

// ofNode tells whether the question is about a node itself.
func (in *inquiry) ofNode() bool { return in.f.Pod.Namespace == "" }

// undenied answers for destinations of a node that no rule denies: its own addresses and failsafes. It
// notes the table of failsafes beside the answer about another.
func (in *inquiry) undenied() bool {
	v, a := in.f.View, in.to.Addr
	if !in.ofNode() || v == nil || v.Node == nil || !a.IsValid() {
		return false
	}
	if a.IsLoopback() || slices.Contains(v.Node.Addrs, policy.CleanAddr(a)) {
		in.said.Verdict, in.said.Reason = Allowed, a.String()+" is the node's own address: what it sends there never leaves it"
		return true
	}
	f := in.blank(a)
	f.Reached = netip.AddrPortFrom(a, in.to.Port)
	if s := v.Failsafe(&f, in.f.Snapshot); s != nil {
		in.said.Verdict, in.said.Reason = Allowed, "failsafe "+s.Name+": "+s.PortText()+": no rule denies it"
		return true
	}
	for _, row := range console.FailsafesOf(v.Node).Rows {
		in.note("failsafe %s", row)
	}
	return false
}

// nodeWords puts the answer about a node into words of nodes. Advice for it is about cluster policies.
func (in *inquiry) nodeWords() {
	if !in.ofNode() {
		return
	}
	words := func(text string) string { return strings.ReplaceAll(text, "the pod", "the node") }
	in.said.Reason = words(in.said.Reason)
	for i := range in.said.Notes {
		in.said.Notes[i] = words(in.said.Notes[i])
	}
	in.said.Advice = nil
	if in.said.Verdict == Denied || in.said.Verdict == WouldDeny {
		match := "matches: [{name: " + in.to.Name.String() + "}]"
		if a := in.to.Addr; a.IsValid() {
			match = "networks: [" + netip.PrefixFrom(a, a.BitLen()).String() + "]"
		}
		in.do("to allow it, write a rule of a NodeNetworkPolicy before the rule that denies it: - {action: Accept, %s}; `namegate check --node` tries it", match)
	}
}
