package layout

import (
	"fmt"
	"slices"
	"time"

	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
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
	giveBackPriority  = "310"
	bridgePriority    = "-300"
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

type family struct {
	suffix, ip, addr, dnat string
	node, loopback         string // nodeSubject, and its value
}

var families = []family{{"4", "ip", "ipv4_addr", "ip", "ip saddr & 0.0.0.0 ^ 127.0.0.1", "127.0.0.1"}, {"6", "ip6", "ipv6_addr", "ip6", "ip6 saddr & :: ^ ::1", "::1"}}

// builder collects the sets, maps and chains of a table.
type builder struct{ nft.Layout }

func (l *builder) add(s nft.Set) {
	s.Comment = describe(s.Name, false)
	l.Sets = append(l.Sets, &s)
}

func (l *builder) set(name, typ string) { l.add(nft.Set{Name: name, Key: typ}) }

// dynamic is a set that the kernel fills, with its maximum size and timeout.
func (l *builder) dynamic(name, typ string, most uint64, kept time.Duration) {
	l.add(nft.Set{Name: name, Key: typ, Fill: nft.Kernel, Timeout: kept, Size: most})
}

// ranges is a set of prefixes.
func (l *builder) ranges(name, typ string) { l.add(nft.Set{Name: name, Key: typ, Fill: nft.Ranges}) }

func (l *builder) mapping(name, key, value string) {
	l.add(nft.Set{Name: name, Key: key, Value: value})
}

func (l *builder) addrMap(name string, f family) { l.mapping(name+f.suffix, f.addr, f.addr) }

// chain adds a chain; hook "" makes it a regular one.
func (l *builder) chain(name, typ, hook, priority string, rules ...string) {
	var base *nft.Hook
	if hook != "" {
		base = &nft.Hook{Type: typ, Hook: hook, Priority: priority}
	}
	l.Chains = append(l.Chains, newChain(name, base, rules...))
}

func newChain(name string, base *nft.Hook, rules ...string) *nft.Chain {
	return nft.NewChain(name, describe(name, true), base, rules...)
}

// each renders rules once for each family; %[1]s is the set suffix, %[2]s the
// protocol word, %[3]s the family word of dnat, %[4]s the word for the node.
func each(templates ...string) []string {
	var out []string
	for _, f := range families {
		for _, t := range templates {
			out = append(out, fmt.Sprintf(t+"%.0[1]s%.0[2]s%.0[3]s%.0[4]s", f.suffix, f.ip, f.dnat, f.node))
		}
	}
	return out
}

// Most packets are no queries: these rules come before each lookup in a set.
const (
	notUDP  = "meta l4proto != udp return"
	noQuery = "udp dport != " + dnsPort + " goto bypass"
)

// unknown matches the address of a pod that the agent does not know yet.
const unknown = "%[2]s saddr @podrange%[1]s %[2]s saddr != @plain%[1]s"

func inetLayout(m Mode) *nft.Layout {
	l := &builder{nft.Layout{ID: Inet, Passing: passing, Counters: []string{deniedCounter}}}
	l.add(nft.Set{Name: aliveSet, Key: "inet_service", Fill: nft.Renewed, Renewed: dnsPort, Timeout: HeartbeatTimeout})
	l.set("ifaces", "ifname")
	for _, f := range families {
		for _, s := range []string{"selected", "dropped", "intercepted", "known", "plain", "endpoint", "homed", auditedSet, servingSet, dnsSet} {
			l.set(s+f.suffix, f.addr)
		}
		l.mapping(tiersMap+f.suffix, f.addr, "verdict")
		l.ranges("podrange"+f.suffix, f.addr)
		l.ranges(networksSet+f.suffix, f.addr)
		l.ranges(servicesSet+f.suffix, f.addr)
		l.add(nft.Set{Name: timed.KeySet + f.suffix, Key: f.addr + " . " + f.addr, Fill: nft.Keys})
		l.dynamic(probedSet+f.suffix, f.addr, maxProbed, probedFor)
		l.logSets(f)
		l.bypassSets(f)
		l.flowSets(f)
		l.nodeDNSSets(f)
		l.add(nft.Set{Name: heldSet + f.suffix, Key: f.addr, Fill: nft.Renewed, Renewed: f.loopback, Timeout: UnconfirmedTimeout})
		l.set("own"+f.suffix, f.addr+" . "+f.addr)
		l.set("home"+f.suffix, "ifname . "+f.addr)
		for _, m := range []string{"intercept", "giveback"} {
			l.addrMap(m, f)
		}
		l.mapping("backends"+f.suffix, "inet_service", f.addr+" . inet_service")
	}
	var mark string
	if m.Candidates {
		// Rules outside of these tables, which find candidates, check these homes no more.
		mark = fmt.Sprintf("meta mark set meta mark | %#x ", m.Admitted)
	}
	l.chain("home", "", "", "", append(
		each("iifname . %[2]s saddr @home%[1]s "+mark+"return", "%[2]s saddr @homed%[1]s drop"),
		append(append([]string{"iifname != @ifaces return"}, unforwarded...), "drop")...)...)
	l.chain("bypass", "", "", "", each(bypassRule)...)
	l.flowChains()
	l.chain("prerouting", "filter", "prerouting", interceptPriority, append([]string{"jump home", "tcp dport " + dnsPort + " goto dnstcp", notUDP, noQuery, "jump bypass"}, append(each(
		fmt.Sprintf("udp sport %d", ProbePort)+" %[2]s saddr @selected%[1]s update @"+probedSet+"%[1]s { %[2]s saddr }"),
		leads("udp", toServer)...)...)...)
	l.chain("watch", "", "", "", watchRules()...)
	l.chain("dialled", "", "", "", dialledRules()...)
	// The kernel asks a chain of this type about the first packet of a connection alone.
	l.chain("dial", "nat", "prerouting", dialPriority, slices.Concat(auditedRules(), []string{"meta l4proto != { tcp, udp } return", "th dport != " + dnsPort + " return"}, each(
		"meta l4proto { tcp, udp } %[2]s daddr @endpoint%[1]s dnat %[3]s to th sport & "+fmt.Sprint(slots-1)+" map @backends%[1]s"))...)
	// The agent asks its own serving addresses too: for pods only what leaves is given back, for the
	// node what does not come to a serving address.
	l.chain("giveback", "filter", "output", giveBackPriority, slices.Concat([]string{"th sport != " + dnsPort + " return", "meta l4proto != { tcp, udp } return"},
		each(answered), each(`oifname != "lo" %[2]s saddr set %[2]s saddr map @giveback%[1]s`),
		each("%[2]s daddr != @"+nodeServingSet+"%[1]s %[2]s saddr set %[2]s saddr map @"+nodeGiveBackMap+"%[1]s"))...)
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
}

// has matches a mark, "meta mark" or "ct mark", that has a bit.
func has(mark string, bit uint32) string { return fmt.Sprintf("%s & %#x == %#x", mark, bit, bit) }

// verdictChains judges packets from selected pods, and replies to them: a
// connection that was not admitted is denied in both directions, whichever side
// speaks next. Nothing else admits.
func (l *builder) verdictChains(m Mode) {
	unadmitted := fmt.Sprintf("ct direction reply ct mark & %#x != %#x", m.Admitted, m.Admitted)
	admitted := has("ct mark", m.Admitted)
	l.chain("original", "", "", "", dialledAgain()...)
	l.chain("tell", "", "", "", logRules()...)
	l.chain("refuse", "", "", "",
		"meta l4proto tcp reject with tcp reset",
		"reject with icmpx admin-prohibited")
	// A pod may send errors about its own connections, in either direction, and not about
	// others' connections, to which conntrack relates errors of any sender.
	l.chain("errors", "", "", "", append(each(
		"%[2]s saddr . ct original %[2]s saddr @own%[1]s return",
		"%[2]s saddr . ct original %[2]s daddr @own%[1]s return",
		"%[2]s saddr . ct reply %[2]s saddr @own%[1]s return"), "drop")...)
	// Both end the base chain, which leads to the judge twice. The second net asks an
	// untracked packet's own mark.
	l.chain("admit", "", "", "",
		fmt.Sprintf("ct state untracked meta mark set meta mark | %#x accept", m.Candidate),
		fmt.Sprintf("ct mark set ct mark & %#x | %#x accept", ^m.Candidate, m.Admitted))
	l.chain(namedChain, "", "", "", namedRules("goto admit")...)
	denied := append([]string{
		// What a helper expects inherits its master's mark, and a connection that was never
		// answered is judged by each packet.
		"ct state { new, related } " + admitted + fmt.Sprintf(" ct mark set ct mark & %#x", ^m.Admitted),
		"counter name " + deniedCounter,
		// It may be a late segment of an admitted connection: an answer would end that.
		"ct state invalid drop",
	}, append(each(loggedRule), "ct status dnat jump original")...)
	l.chain("denyreject", "", "", "", append(slices.Clone(denied), "goto refuse")...)
	l.chain("denydrop", "", "", "", append(slices.Clone(denied), "drop")...)
	l.chain("deny", "", "", "", append(each("%[2]s saddr @dropped%[1]s goto denydrop"), "goto denyreject")...)
	// No rule of a tier denies these. The agent itself refuses DNS that a rule denies.
	// The own address is what is dialled and what is reached: a Service may claim it, and lead it elsewhere.
	undeniable := each("%[2]s saddr . ct original %[2]s daddr @own%[1]s %[2]s saddr . %[2]s daddr @own%[1]s goto admit",
		"meta l4proto { tcp, udp } th dport "+dnsPort+" %[2]s daddr @"+servingSet+"%[1]s goto admit")
	l.chain("undeniablebare", "", "", "", untracked(undeniable)...)
	l.chain("undeniable", "", "", "", append([]string{"ct state untracked goto undeniablebare"}, undeniable...)...)
	resolve := each("meta l4proto { tcp, udp } ct original proto-dst " + dnsPort + " ct original %[2]s daddr @" + dnsSet + "%[1]s goto admit")
	l.chain("resolvebare", "", "", "", untracked(resolve)...)
	l.chain("resolve", "", "", "", append([]string{"ct state untracked goto resolvebare"}, resolve...)...)
	l.namespaceChains(m)
	l.chain("judge", "", "", "", append([]string{
		"ct state related meta l4proto { icmp, ipv6-icmp } jump errors",
		"ct direction reply return",
		"ct state related meta l4proto { icmp, ipv6-icmp } return",
		onLink[0],
		onLink[1],
		"ct state invalid goto deny",
	}, append(each("%[2]s saddr vmap @"+tiersMap+"%[1]s"), "jump namespace", "goto deny")...)...)
	l.chain("cut", "", "", "", append(each("ct original %[2]s saddr @dropped%[1]s drop"),
		"meta l4proto tcp reject with tcp reset",
		"drop")...)
	// Nearly every packet leaves by the first rule. What is related to a connection has
	// its mark, and is judged all the same. Staged subjects come first: one
	// that becomes selected while a packet is under way is found by one rule or the other.
	from := slices.Concat([]string{"ct state established " + admitted + " return"}, each("%[2]s saddr @"+stagedSet+"%[1]s jump "+stagedSet, "%[2]s saddr @selected%[1]s jump judge"), []string{"iifname @ifaces jump judge"})
	l.chain("forward", "filter", "forward", verdictPriority, append(slices.Clone(from),
		each("%[2]s daddr @selected%[1]s "+unadmitted+" ct original %[2]s saddr @selected%[1]s goto cut")...)...)
	l.chain("input", "filter", "input", verdictPriority, from...)
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

// numbers is a set of values of a raw payload expression.
func (l *builder) numbers(name, of string) { l.add(nft.Set{Name: name, Key: of, TypeOf: true}) }

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
	l := &builder{nft.Layout{ID: Bridge, Passing: passing}}
	l.set("ports", "ifname")
	for _, f := range families {
		l.set("home"+f.suffix, "ifname . "+f.addr)
		l.set("homed"+f.suffix, f.addr)
	}
	l.set(gatewaySet, "ipv6_addr")
	l.numbers(gatewayNumbers, advertised)
	l.numbers(claimSet, "iifname . "+advertised)
	l.chain("claims", "", "", "", claimRules...)
	rules := append([]string{
		// By default the kernel does not hand tagged frames to the inet family, not even
		// frames with a priority tag only.
		"iifname @ports ether type { 0x8100, 0x88a8 } drop",
		"iifname @ports ip6 saddr @" + gatewaySet + " drop",
		"iifname @ports icmpv6 type 136 jump claims",
	},
		each("iifname . %[2]s saddr @home%[1]s return", "%[2]s saddr @homed%[1]s drop")...)
	rules = append(rules,
		"iifname . arp saddr ip @home4 return",
		"arp saddr ip @homed4 drop",
		"iifname != @ports return",
		"arp saddr ip 0.0.0.0 return")
	rules = append(append(rules, unforwarded...), "drop")
	l.chain("home", "filter", "prerouting", bridgePriority, rules...)
	return nft.NewLayout(l.Layout)
}
