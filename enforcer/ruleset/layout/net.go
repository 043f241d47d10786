package layout

import (
	"slices"

	"github.com/namegate/namegate/enforcer/ruleset/lists"
	"github.com/namegate/namegate/kernel/nft"
)

// netPriority is that of iptables' security table, behind every filter.
const netPriority = "50"

// netLayout is the second net: a table of its own that denies what selected subjects send and get
// without an admission. Without the other tables nothing is admitted.
func netLayout(bits Bits) *nft.Layout {
	l := &builder{nft.Layout{ID: Net, Guard: true, Sets: slices.Concat(setsOf("selected"), setsOf(ingressSet), []*nft.Set{ifaces})}}
	// The judge marks an untracked packet that it allows.
	l.chain("unadmitted", "drops what is not admitted",
		"ct direction reply return",
		"ct state related meta l4proto { icmp, ipv6-icmp } return",
		"ct state untracked "+has("meta mark", bits.Candidate)+" return",
		onLink[0],
		onLink[1],
		"drop")
	// No selected subject has such a source.
	l.chain("foreign", "drops other sources from interfaces of pods", append(slices.Clone(unforwarded), "drop")...)
	rules := slices.Concat([]string{has("ct mark", bits.Admitted) + " return"},
		lists.Each("%[2]s daddr @selected%[1]s ct direction reply drop", "%[2]s saddr @selected%[1]s goto unadmitted"),
		[]string{"iifname @ifaces goto foreign"})
	// A reply to the node's own processes is not forwarded.
	l.base("forward", "judges forwarded packets", &nft.Hook{Type: "filter", Hook: "forward", Priority: netPriority}, slices.Concat(rules[:1], lists.Each(
		"%[2]s saddr @"+ingressSet+"%[1]s ct direction reply drop"), rules[1:], lists.Each("%[2]s daddr @"+ingressSet+"%[1]s goto unadmitted"))...)
	l.base("input", "judges packets to the node", &nft.Hook{Type: "filter", Hook: "input", Priority: netPriority}, rules...)
	return nft.NewLayout(l.Layout)
}

// net renders a state as elements of the second net.
func (s State) net() nft.Elements {
	out := elements{nft.Elements{}}
	out.addrs("selected", s.Selected)
	for _, t := range s.Ingress {
		out.addrs(ingressSet, s.settled(t))
	}
	for _, i := range s.Ifaces {
		out.Add("ifaces", ifname(i))
	}
	return out.Sorted()
}
