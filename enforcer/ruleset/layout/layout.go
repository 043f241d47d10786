package layout

import (
	"fmt"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/ruleset/lists"
	"github.com/namegate/namegate/kernel/nft"
)

// probedSet, with the family, holds the pods whose self-test query netfilter saw
// of late. The kernel fills it by itself.
const probedSet = "probed"

const (
	// ProbePort is the source port of the self-test's queries: discard (RFC 863),
	// from which no resolver of a pod asks.
	ProbePort = 9
	// probedFor is how long one is remembered.
	probedFor = 3 * time.Second
	// maxProbed bounds what pods can make the kernel remember.
	maxProbed = 4096
)

// slots are the parts of the endpoint's queries that backends share: the last four
// bits of the client's port say which part a query is.
const slots = 16

// Priorities of our base chains: home check and interception before conntrack (-200) and
// the raw table (-300), the fallback of the endpoint and the audit log just before kube-proxy's DNAT
// (-100), the verdict just before the filter tables (0), give back at output, which
// forwarded packets do not pass, after every other program's filters.
const (
	interceptPriority = "-310"
	dialPriority      = "-110"
	verdictPriority   = "-10"
	ingressPriority   = "-9" // behind the verdict about the source
	giveBackPriority  = "310"

	untrackedPriority = "-299" // before conntrack, behind the raw table
	beforeNATPriority = "-149" // before the DNAT of others, behind conntrack and mangle
	arrivingPriority  = "-12"  // both before the verdict about pods
	leavingPriority   = "-11"
	// The first of the nat type: behind one that translates the source the kernel asks none.
	translatedPriority = "-199"

	// Of Audit policies for the node: what it forwards and gets is asked before the verdict, which ends Bits.Accepted.
	auditPriority          = "-13"
	beforeNATAuditPriority = "-148"
	untrackedAuditPriority = "-298"

	leadPriority  = "-109" // behind the audit log, before the DNAT of others
	guardPriority = "-13"  // before the verdict about pods

	bridgePriority = "-300"
)

// The ICMPv6 types that conntrack never tracks and that a host must send for its
// link to have IPv6: solicitations and advertisements of neighbours (RFC 4861),
// reports of listeners (RFC 2710, RFC 3810). What routers and queriers send is not
// among them.
const (
	discoveryTypes = "{ 133, 135, 136 }"
	listenerTypes  = "{ 131, 132, 143 }"
)

// unforwarded exempts discovery from the home check, from the two sources that
// the kernel never forwards.
var unforwarded = []string{
	"ip6 saddr ::/128 icmpv6 type " + discoveryTypes + " return",
	"ip6 saddr ::/128 icmpv6 type " + listenerTypes + " return",
	"ip6 saddr fe80::/10 icmpv6 type " + discoveryTypes + " return",
	"ip6 saddr fe80::/10 icmpv6 type " + listenerTypes + " return",
}

// onLink exempts discovery from the verdict as long as it cannot leave the link:
// a router has counted the hop limit of 255 down before it asks, and does not
// forward to multicast groups.
var onLink = []string{
	"ct state untracked ip6 hoplimit 255 icmpv6 type " + discoveryTypes + " return",
	"ct state untracked ip6 daddr ff00::/8 icmpv6 type " + listenerTypes + " return",
}

// builder collects the chains of a table.
type builder struct{ nft.Layout }

func (l *builder) chain(name, comment string, rules ...string) { l.base(name, comment, nil, rules...) }

// base adds a chain that the kernel asks.
func (l *builder) base(name, comment string, hook *nft.Hook, rules ...string) {
	l.Chains = append(l.Chains, nft.NewChain(name, comment, hook, rules...))
}

// Most packets are no queries: these rules come before each lookup in a set.
const (
	notUDP  = "meta l4proto != udp return"
	noQuery = "udp dport != " + dnsPort + " goto bypass"
)

// unknown matches the address of a pod that the agent does not know yet.
const unknown = "%[2]s saddr @podrange%[1]s %[2]s saddr != @plain%[1]s"

func inetLayout(m Mode) *nft.Layout {
	l := &builder{nft.Layout{ID: Inet, Passing: passing, Counters: []string{deniedCounter}, Sets: inetSets()}}
	var mark string
	if m.Candidates {
		// Rules outside of these tables, which find candidates, check these homes no more.
		mark = fmt.Sprintf("meta mark set meta mark | %#x ", m.Admitted)
	}
	l.chain("home", "drops packets with an address that is not at home where they come from", append(
		lists.Each("iifname . %[2]s saddr @home%[1]s "+mark+"return", "%[2]s saddr @homed%[1]s drop"),
		append(append([]string{"iifname != @" + boundSet + " return"}, unforwarded...), "drop")...)...)
	l.chain("bypass", "notes pods that ask an address behind a resolver", lists.Each(bypassRule)...)
	l.flowChains()
	l.base("prerouting", "home check and interception of DNS", &nft.Hook{Type: "filter", Hook: "prerouting", Priority: interceptPriority}, append([]string{"jump home", "tcp dport " + dnsPort + " goto dnstcp", notUDP, noQuery, "jump bypass"}, append(lists.Each(
		fmt.Sprintf("udp sport %d", ProbePort)+" %[2]s saddr @selected%[1]s update @"+probedSet+"%[1]s { %[2]s saddr }"),
		leads("udp", toServer)...)...)...)
	l.chain("watch", "logs a new connection of an audited subject", watchRules()...)
	l.chain("dialled", "passes over what was logged lately", dialledRules()...)
	// The kernel asks a chain of this type about the first packet of a connection alone.
	l.base("dial", "audit log and fallback of the endpoint", &nft.Hook{Type: "nat", Hook: "prerouting", Priority: dialPriority}, slices.Concat(auditedRules(), []string{"meta l4proto != { tcp, udp } return", "th dport != " + dnsPort + " return"}, lists.Each(
		"meta l4proto { tcp, udp } %[2]s daddr @endpoint%[1]s dnat %[3]s to th sport & "+fmt.Sprint(slots-1)+" map @backends%[1]s"))...)
	// The agent asks its own serving addresses too: for pods only what leaves is given back, for the
	// node what does not come to a serving address.
	l.base("giveback", "gives replies of the agent the source that was dialled", &nft.Hook{Type: "filter", Hook: "output", Priority: giveBackPriority}, slices.Concat([]string{"th sport != " + dnsPort + " return", "meta l4proto != { tcp, udp } return"},
		lists.Each(answered), lists.Each(`oifname != "lo" %[2]s saddr set %[2]s saddr map @giveback%[1]s`),
		lists.Each("%[2]s daddr != @"+nodeServingSet+"%[1]s %[2]s saddr set %[2]s saddr map @"+nodeGiveBackMap+"%[1]s"))...)
	l.verdictChains(m)
	return nft.NewLayout(l.Layout)
}

// Bits are of marks, each one bit.
type Bits struct {
	// Admitted is of connection marks: it says that a connection was judged and allowed. In a
	// packet's mark it says that the packet comes from its home, to rules outside of these
	// tables that find candidates. They clear it.
	Admitted uint32
	// Candidate is of packet and connection marks: it says that rules outside of these
	// tables allow a packet. It admits nothing by itself.
	Candidate uint32
	// Accepted is of packet marks alone: a rule of the node for traffic before translation, or untracked, accepts the packet, and
	// those for local and forwarded traffic let it pass.
	Accepted uint32
}

// has matches a mark, "meta mark" or "ct mark", that has a bit.
func has(mark string, bit uint32) string { return fmt.Sprintf("%s & %#x == %#x", mark, bit, bit) }

// verdictChains judges packets from selected pods, and replies to them: a
// connection that was not admitted is denied in both directions, whichever side
// speaks next. Nothing else admits.
func (l *builder) verdictChains(m Mode) {
	unadmitted := unadmittedReply(m.Bits)
	admitted := has("ct mark", m.Admitted)
	l.chain("original", "undoes a translated destination before a denial", dialledAgain()...)
	l.chain("tell", "logs a denied packet", logRules()...)
	l.chain("refuse", "answers a denied packet",
		"meta l4proto tcp reject with tcp reset",
		"reject with icmpx admin-prohibited")
	// A pod may send errors about its own connections, in either direction, and not about
	// others' connections, to which conntrack relates errors of any sender.
	l.chain("errors", "ICMP errors about own connections alone", append(lists.Each(
		"%[2]s saddr . ct original %[2]s saddr @own%[1]s return",
		"%[2]s saddr . ct original %[2]s daddr @own%[1]s return",
		"%[2]s saddr . ct reply %[2]s saddr @own%[1]s return"), "drop")...)
	// Both end the base chain, which leads to the judge twice. The second net asks an
	// untracked packet's own mark.
	admit := []string{
		fmt.Sprintf("ct state untracked meta mark set meta mark | %#x accept", m.Candidate),
		fmt.Sprintf("ct mark set ct mark & %#x | %#x accept", ^m.Candidate, m.Admitted),
	}
	l.chain("admit", "admits, unless the destination has rules for ingress: these come next", append(lists.Each("%[2]s daddr @"+postponedSet+"%[1]s accept"), admit...)...)
	l.chain("admitingress", "admits what rules for ingress allow", admit...)
	l.ingressChains(m.Bits)
	l.chain(namedChain, "where a connection by name may lead", namedRules("goto admit")...)
	denied := append(deniedRules(m.Bits), append(lists.Each(loggedRule), "ct status dnat jump original")...)
	l.chain("denyreject", "denies with an answer", append(slices.Clone(denied), "goto refuse")...)
	l.chain("denydrop", "denies without an answer", append(slices.Clone(denied), "drop")...)
	l.chain("deny", "denies as the subject wants it", append(lists.Each("%[2]s saddr @dropped%[1]s goto denydrop"), "goto denyreject")...)
	// No rule of a tier denies these. The agent itself refuses DNS that a rule denies.
	// The own address is what is dialled and what is reached: a Service may claim it, and lead it elsewhere.
	undeniable := lists.Each("%[2]s saddr . ct original %[2]s daddr @own%[1]s %[2]s saddr . %[2]s daddr @own%[1]s goto admit",
		"meta l4proto { tcp, udp } th dport "+dnsPort+" %[2]s daddr @"+servingSet+"%[1]s goto admit")
	l.chain("undeniablebare", "the same for untracked packets", lists.Untracked(undeniable)...)
	l.chain("undeniable", "what no ordered rule denies", append([]string{"ct state untracked goto undeniablebare"}, undeniable...)...)
	resolve := lists.Each("meta l4proto { tcp, udp } ct original proto-dst " + dnsPort + " ct original %[2]s daddr @" + dnsSet + "%[1]s goto admit")
	l.chain("resolvebare", "the same for untracked packets", lists.Untracked(resolve)...)
	l.chain("resolve", "DNS to resolvers", slices.Concat(lists.Each("%[2]s saddr @"+dnsByRulesSet+"%[1]s return"), []string{"ct state untracked goto resolvebare"}, resolve)...)
	l.namespaceChains(m)
	l.chain("judge", "judges a packet of a selected address", append([]string{
		"ct state related meta l4proto { icmp, ipv6-icmp } jump errors",
		"ct direction reply return",
		"ct state related meta l4proto { icmp, ipv6-icmp } return",
		onLink[0],
		onLink[1],
		"ct state invalid goto deny",
	}, append(lists.Each("%[2]s saddr vmap @"+tiersMap+"%[1]s"), "jump namespace", "goto deny")...)...)
	l.chain("cut", "ends a connection without admission", append(lists.Each("ct original %[2]s saddr @dropped%[1]s drop"),
		"meta l4proto tcp reject with tcp reset",
		"drop")...)
	// Nearly every packet leaves by the first rule. What is related to a connection has
	// its mark, and is judged all the same. Staged subjects come first: one
	// that becomes selected while a packet is under way is found by one rule or the other.
	from := slices.Concat([]string{"ct state established " + admitted + " return"}, lists.Each("%[2]s saddr @"+stagedSet+"%[1]s jump "+stagedSet, "%[2]s saddr @selected%[1]s jump judge"), []string{"iifname @ifaces jump judge"})
	l.base("forward", "judges forwarded packets", &nft.Hook{Type: "filter", Hook: "forward", Priority: verdictPriority}, append(slices.Clone(from),
		lists.Each("%[2]s daddr @selected%[1]s "+unadmitted+" ct original %[2]s saddr @selected%[1]s goto cut")...)...)
	l.base("input", "judges packets to the node", &nft.Hook{Type: "filter", Hook: "input", Priority: verdictPriority}, from...)
}

// The target address of neighbour advertisements (RFC 4861 §4.4), for which not every
// version of nft has an expression: the bytes from 64 bits behind the beginning of the
// ICMPv6 message. To nft it is a number, and so is the value it is compared with.
const (
	advertised     = "@th,64,128"
	advertisedHead = "@th,64,16"

	claimSet       = "claims6"   // port and number
	gatewaySet     = "gateways6" // addresses
	gatewayNumbers = "gatewaynumbers6"
)

// claimRules judge neighbour advertisements of bridged pods: of the addresses that
// are at home there, and of link-local ones but the node's. ARP has its sender's
// address, which the home check asks for.
var claimRules = []string{
	"iifname . " + advertised + " @" + claimSet + " return",
	advertisedHead + " & 0xffc0 == 0xfe80 " + advertised + " != @" + gatewayNumbers + " return",
	"drop",
}

// bridgeLayout is the home check of bridged pods, ARP included.
func bridgeLayout() *nft.Layout {
	l := &builder{nft.Layout{ID: Bridge, Passing: passing, Sets: bridgeSets}}
	l.chain("claims", "judges neighbour advertisements of bridged pods", claimRules...)
	rules := append([]string{
		// By default the kernel does not hand tagged frames to the inet family, not even
		// frames with a priority tag only.
		"iifname @ports ether type { 0x8100, 0x88a8 } drop",
		"iifname @ports ip6 saddr @" + gatewaySet + " drop",
		"iifname @ports icmpv6 type 136 jump claims",
	},
		lists.Each("iifname . %[2]s saddr @home%[1]s return", "%[2]s saddr @homed%[1]s drop")...)
	rules = append(rules,
		"iifname . arp saddr ip @home4 return",
		"arp saddr ip @homed4 drop",
		"iifname != @ports return",
		"arp saddr ip 0.0.0.0 return")
	rules = append(append(rules, unforwarded...), "drop")
	l.base("home", "drops packets with an address that is not at home where they come from", &nft.Hook{Type: "filter", Hook: "prerouting", Priority: bridgePriority}, rules...)
	l.base("ingress", "drops what does not go to the addresses of a pod with rules for ingress", &nft.Hook{Type: "filter", Hook: "forward", Priority: bridgePriority}, bridgedIngress...)
	return nft.NewLayout(l.Layout)
}
