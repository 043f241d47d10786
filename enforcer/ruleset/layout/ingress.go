package layout

import (
	"fmt"
	"slices"

	"github.com/namegate/namegate/enforcer/ruleset/lists"
	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/kernel/nft"
)

// Rules for ingress are asked of a forwarded packet that goes to a subject, by a base chain behind the one that judges
// its source: the kernel takes 16 chains that lead to each other, and both have long lists. A connection is admitted
// when both allow it. The packets of the node's own processes are not forwarded, and never judged.

const (
	ingressPrefix = "ingress-" // chains of rules for ingress
	ingressChain  = ingressPrefix + "forward"

	ingressSet       = "ingress"       // subjects of State.Ingress
	postponedSet     = "postponed"     // the same without State.Unsettled: without one of both, no admission is left
	ingressMap       = "ingresschains" // leads them to their chains
	ingressPorts     = "ingressports"  // State.IngressPorts
	boundSet         = "bound"         // State.Ifaces and State.Bound
	loggedIngressSet = "toldingress"   // loggedSet of packets to pods
)

// ingressWords are of rules for ingress. The standards' policies deny without an answer.
var ingressWords = &lists.Words{Verdicts: [...]string{Accept: "goto admitingress", Reject: "goto denyingress", Drop: "goto denyingress"}, Subject: lists.Source, Peer: lists.Source}

// unadmittedReply matches a reply of a connection without an admission.
func unadmittedReply(bits Bits) string {
	return fmt.Sprintf("ct direction reply ct mark & %#x != %#x", bits.Admitted, bits.Admitted)
}

// deniedRules begin a chain that denies.
func deniedRules(bits Bits) []string {
	return []string{
		// What a helper expects inherits its master's mark, and a connection that was never
		// answered is judged by each packet.
		"ct state { new, related } " + has("ct mark", bits.Admitted) + fmt.Sprintf(" ct mark set ct mark & %#x", ^bits.Admitted),
		"counter name " + deniedCounter,
		// It may be a late segment of an admitted connection: an answer would end that.
		"ct state invalid drop",
	}
}

// ingressChains judge packets to subjects of State.Ingress.
func (l *builder) ingressChains(bits Bits) {
	l.chain("tellingress", "logs a packet that rules for ingress deny", "limit rate "+logLimit+" "+logRule(nflog.PrefixIngress))
	l.chain("denyingress", "denies a packet to a subject", append(deniedRules(bits), append(lists.Each(
		"%[2]s daddr @"+ingressSet+"%[1]s update @"+loggedIngressSet+"%[1]s { %[2]s daddr "+podLogLimit+" } jump tellingress"), "drop")...)...)
	icmp := "ct state related meta l4proto { icmp, ipv6-icmp } "
	l.chain("judgeingress", "judges a packet to a subject", slices.Concat([]string{
		"ct direction reply return",
		icmp + has("ct mark", bits.Admitted) + " return",
		icmp + "counter name " + deniedCounter + " drop",
	}, onLink, []string{"ct state invalid goto denyingress"}, lists.Each("%[2]s daddr vmap @"+ingressMap+"%[1]s"), []string{"goto denyingress"})...)
	l.chain("forwardingress", "judges forwarded packets to and from subjects", append([]string{"ct state established " + has("ct mark", bits.Admitted) + " return"}, lists.Each(
		"%[2]s daddr @"+ingressSet+"%[1]s jump judgeingress",
		// The client asks again, and is judged: an answer would end its connection.
		"%[2]s saddr @"+postponedSet+"%[1]s "+unadmittedReply(bits)+" drop")...)...)
}

// ingressHook has the kernel ask the rules for ingress where there are some.
func (d *dispatch) ingressHook(some bool) {
	if some {
		d.nodeChain(ingressChain, &nft.Hook{Type: "filter", Hook: "forward", Priority: ingressPriority}, "goto forwardingress")
	}
}

// toSubjects makes the chains of rules for ingress, and returns the one that subjects are led to.
func (d *dispatch) toSubjects(t *Tiers) string {
	list := func(rules []*TierRule, pass string) []*lists.Item {
		return d.List(ingressWords, rules, pass)
	}
	var rest []*lists.Item
	if t.Namespace {
		// What a pod sends to itself, by a Service.
		rest = append([]*lists.Item{lists.NewItem("goto admitingress", lists.Each("%[2]s saddr . %[2]s daddr @own%[1]s ")...)}, list(t.Accepts, "goto denyingress")...)
	} else {
		rest = list(t.Baseline, "goto admitingress")
	}
	if len(t.Admin) == 0 {
		return d.Chain(ingressPrefix, rest...)
	}
	return d.Chain(ingressPrefix, list(t.Admin, "goto "+d.Chain(ingressPrefix, rest...))...)
}

// bridgedIngress lets to a bridge port of a subject what goes to its own addresses, which other tables judge, and what
// gives a pod its link: a pod takes in other addresses too, and frames with a priority tag, which no other table sees.
var bridgedIngress = slices.Concat([]string{
	"oifname != @" + ingressPorts + " return",
	"ether type { 0x8100, 0x88a8 } drop",
	"ether type arp return",
	"icmpv6 type " + discoveryTypes + " return",
	"icmpv6 type " + listenerTypes + " return",
	"icmpv6 type { 130, 134 } return", // of queriers and routers
	"udp dport { 67, 68, 546, 547 } return",
}, lists.Each("oifname . %[2]s daddr @home%[1]s return"), []string{"drop"})
