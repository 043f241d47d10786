package layout

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/kernel/nflog"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/policy"
)

// The rules of the node judge what begins a connection, and untracked packets, of TCP those with SYN alone; of what is
// forwarded, all that belongs to no connection. Each traffic has base chains of its own, which are there with such rules alone. They admit nothing: a connection that is open stays
// open.

// Node are the rules of the node.
type Node struct {
	// ID is of equal rules alone, with the Renew of their entry sets.
	ID string
	// Accepted is Bits.Accepted.
	Accepted uint32
	NodeRules
	// Confirmed count in place of NodeRules while HoldUnconfirmed is not called, nil: NodeRules
	// always count.
	Confirmed *NodeRules
}

// NodeRules are the rules of the node by traffic.
type NodeRules struct {
	// In are failsafes by the source of what arrives, Out by the destination of what leaves: what is dialled, and
	// what is reached. They accept whatever the other rules are. Their peers are networks.
	In, Out []*TierRule
	Traffic NodeTraffic
}

// NodeTraffic are the rules of the node for what arrives and for what leaves, in order.
type NodeTraffic [policy.Untracked + 1]struct{ Ingress, Egress []NodeList }

// NodeList are rules in order about packets by the same interfaces: of a name that ends with "*" those that begin so.
type NodeList struct {
	Interfaces []string
	Rules      []*TierRule
}

// The chains of the node's rules. Each hook has the three whose names are behind its own.
const (
	nodePrefix = "node-" // of the chains

	auditedChain   = nodePrefix + "audited"  // logs what begins a connection
	nodeNamedChain = nodePrefix + "named"    // namedChain of the node
	acceptedChain  = nodePrefix + "accepted" // has Local and Forwarded let a packet pass
	notrackChain   = nodePrefix + "notrack"  // the same, and connection tracking does not see it

	toldSuffix     = "-told"     // counts and logs what is denied
	rejectedSuffix = "-rejected" // denies with an answer
	droppedSuffix  = "-dropped"  // denies without one
)

// nodeSubject is the word for the node in keys of entries: its loopback address, whatever address
// a packet comes from.
const nodeSubject = "%[4]s"

// nodeHook is where the kernel asks the rules of one traffic and direction.
type nodeHook struct {
	chain string
	nft.Hook
	traffic policy.Traffic
	ingress bool
	*words
	begin []string // rules before those of NodeRules, for packets that are not judged
}

// begun are packets of connections of TCP that began before: connection tracking does not know some of them, as
// those that it forgot, or that another program exempts, also those of others to the node.
const (
	continues = "tcp flags & (syn | ack) != syn "
	begun     = continues + "return"
)

// open are forwarded packets that are not judged. What begun passes is judged: raw sockets of pods need no connection.
var open = append([]string{"ct state established,related return"}, onLink...)

// unrelated are packets that have to do with pods or with the connection of another packet: a reply to a pod that is not
// tracked would make the pod's next packet invalid.
var unrelated = slices.Concat([]string{"icmp type { destination-unreachable, time-exceeded, parameter-problem } return", "icmpv6 type { 1, 2, 3, 4 } return"},
	each("%[2]s saddr @known%[1]s return", "%[2]s daddr @known%[1]s return", "%[2]s saddr @podrange%[1]s return", "%[2]s daddr @podrange%[1]s return", "%[2]s daddr @"+servingSet+"%[1]s return"))

// unrelatedIn and unrelatedOut are those of a direction.
var (
	unrelatedIn  = append([]string{`iifname "lo" return`, "iifname @" + boundSet + " return", "fib daddr type != local return"}, unrelated...)
	unrelatedOut = append([]string{`oifname "lo" return`, "oifname @" + boundSet + " return"}, unrelated...)
)

// newNodeHook returns a hook. accept is its verdict of rules that accept.
func newNodeHook(name string, hook nft.Hook, traffic policy.Traffic, ingress bool, accept string, begin ...string) nodeHook {
	chain, w := nodePrefix+name, &words{named: nodeNamedChain, subjectWord: nodeSubject, peerWord: destinationWord}
	w.verdicts = [...]string{Accept: accept, Reject: "goto " + chain + rejectedSuffix, Drop: "goto " + chain + droppedSuffix}
	if ingress {
		w.peerWord = sourceWord
	}
	h := nodeHook{chain, hook, traffic, ingress, w, begin}
	if !h.answers() {
		w.verdicts[Reject] = w.verdicts[Drop]
	}
	return h
}

// answers tells whether a packet can be answered there.
func (h *nodeHook) answers() bool { return h.traffic <= policy.Forwarded && h.Hook.Hook != postrouting }

// untracks tells whether it comes before connection tracking.
func (h *nodeHook) untracks() bool { return h.Priority == untrackedPriority }

const postrouting = "postrouting"

// nodeHooks are all of them. The interface by which a packet leaves is known at output unless its destination is
// translated there.
var nodeHooks = []nodeHook{
	newNodeHook("untrackedin", nft.Hook{Type: "filter", Hook: "prerouting", Priority: untrackedPriority}, policy.Untracked, true, "goto "+notrackChain, unrelatedIn...),
	newNodeHook("untrackedout", nft.Hook{Type: "filter", Hook: "output", Priority: untrackedPriority}, policy.Untracked, false, "goto "+notrackChain, unrelatedOut...),
	// What passed as an answer of a failsafe and answers nothing is asked again. It is tracked whatever accepts it.
	newNodeHook("unaskedin", nft.Hook{Type: "filter", Hook: "prerouting", Priority: beforeNATPriority}, policy.Untracked, true, "accept", slices.Concat([]string{"ct state != new return", begun}, unrelatedIn)...),
	newNodeHook("unaskedout", nft.Hook{Type: "filter", Hook: "output", Priority: beforeNATPriority}, policy.Untracked, false, "accept", slices.Concat([]string{"ct state != new return", begun}, unrelatedOut)...),
	newNodeHook("beforenat", nft.Hook{Type: "filter", Hook: "prerouting", Priority: beforeNATPriority}, policy.BeforeNAT, true, "goto "+acceptedChain, "iifname \"lo\" return", "ct state != new return", begun),
	newNodeHook("arriving", nft.Hook{Type: "filter", Hook: "forward", Priority: arrivingPriority}, policy.Forwarded, true, "accept", open...),
	newNodeHook("leaving", nft.Hook{Type: "filter", Hook: "forward", Priority: leavingPriority}, policy.Forwarded, false, "accept", open...),
	newNodeHook("input", nft.Hook{Type: "filter", Hook: "input", Priority: verdictPriority}, policy.Local, true, "accept", "ct state established,related,invalid return", "iifname \"lo\" return", begun),
	newNodeHook("output", nft.Hook{Type: "filter", Hook: "output", Priority: verdictPriority}, policy.Local, false, "accept", "ct state established,related,invalid return", "ct status dnat return", "oifname \"lo\" return", begun),
	newNodeHook("translated", nft.Hook{Type: "filter", Hook: postrouting, Priority: verdictPriority}, policy.Local, false, "accept",
		"ct state != new return", "ct status & dnat == 0 return", "oifname \"lo\" return", "fib saddr type != local return", begun),
}

// lists are the lists that the hook asks.
func (n *NodeRules) lists(h *nodeHook) []NodeList {
	if h.ingress {
		return n.Traffic[h.traffic].Ingress
	}
	return n.Traffic[h.traffic].Egress
}

// nodeLogLimit bounds the log of the node.
const nodeLogLimit = podLogLimit

// local accepts packets to the node itself, which leave by another interface where a rule of
// the output hook has led them there: the interception of DNS. Other packets to the node leave by lo.
const local = "fib daddr type local accept"

// undeniableOut and undeniableIn are packets that no rule of the node denies, by protocol as policy.Protocol writes it
// (58 is ICMPv6, 2 is IGMP): without them the node has no link or no address. A host is also a
// router to its pods. ICMPv6 2 says that a packet is too big.
var (
	undeniableOut = map[string][]string{
		"58": onLinkOfNode, "2": {"ip daddr 224.0.0.0/4 accept"}, "tcp": {"tcp dport " + dnsPort + " " + local},
		"udp": {local, "udp sport 68 udp dport 67 accept", "udp sport 546 udp dport 547 accept"},
	}
	undeniableIn = map[string][]string{
		"58": onLinkOfNode, "2": {"ip daddr 224.0.0.0/4 accept"}, "tcp": podsQueries,
		// The reply to a query of a bound socket, of which connection tracking knows what it was led to.
		"udp": append(slices.Concat(podsQueries, each("udp sport "+dnsPort+" %[2]s saddr @"+nodeInterceptMap+"%[1]s accept")), "udp sport 67 udp dport 68 accept", "udp sport 547 udp dport 546 accept"),
	}
	podsQueries  = each("th dport " + dnsPort + " %[2]s daddr @" + servingSet + "%[1]s %[2]s saddr @known%[1]s accept")
	onLinkOfNode = []string{
		"icmpv6 type { 133, 134, 135, 136, 137 } ip6 hoplimit 255 accept",
		"icmpv6 type { 130, 131, 132, 143 } ip6 daddr ff00::/8 accept", "icmpv6 type 2 accept",
	}
)

// unlogged are packets of connections that began before, packets to the node itself, and those of undeniableByNode.
var unlogged = []string{
	begun, `oifname "lo" return`, "fib daddr type local return", "ip protocol igmp return", "udp sport 68 udp dport 67 return", "udp sport 546 udp dport 547 return",
}

// auditedNode makes the chain that has the connections of the node logged, as it dials them. The
// kernel asks a chain of the nat type about the first packet of a connection alone.
func (d *dispatch) auditedNode(audited bool) {
	if audited {
		d.nodeChain(auditedChain, &nft.Hook{Type: "nat", Hook: "output", Priority: dialPriority}, append(slices.Clone(unlogged), "jump dialled")...)
	}
}

// node makes the chains of the node's rules.
func (d *dispatch) node(n *Node) {
	if n == nil {
		return
	}
	d.first = nil
	d.nodeChain(nodeNamedChain, nil, namedRules("accept")...)
	d.nodeChain(acceptedChain, nil, fmt.Sprintf("meta mark set meta mark | %#x accept", n.Accepted))
	d.nodeChain(notrackChain, nil, fmt.Sprintf("meta mark set meta mark | %#x notrack accept", n.Accepted))
	for i := range nodeHooks {
		h := &nodeHooks[i]
		rules, lists := n.marks(h), n.lists(h)
		relayed := d.relayed(n, h)
		if len(lists) == 0 && len(relayed) == 0 && (len(rules) == 0 || h.traffic > policy.Forwarded) {
			continue
		}
		d.denials(h)
		d.nodeChain(h.chain, &h.Hook, slices.Concat(rules, h.begin, relayed, d.judged(n, h))...)
	}
}

// judged returns the rules of a hook, while others wait for confirmation those that are confirmed.
func (d *dispatch) judged(n *Node, h *nodeHook) (rules []string) {
	if len(n.lists(h)) > 0 && n.Confirmed != nil {
		rules = each("%[4]s != @" + heldSet + "%[1]s goto " + d.chain(nodePrefix, newItem("", d.nodeRules(n.Confirmed, h)...)))
	}
	return append(rules, d.nodeRules(&n.NodeRules, h)...)
}

// denials makes the chains of a hook that deny.
func (d *dispatch) denials(h *nodeHook) {
	tell := " jump tell"
	if direction := "egress"; h.traffic != policy.Local || h.ingress {
		if h.ingress {
			direction = "ingress"
		}
		tell = " " + logRule(fmt.Sprintf("%s%s %s ", nflog.PrefixNode, h.traffic, direction))
	}
	d.nodeChain(h.chain+toldSuffix, nil, "counter name "+deniedCounter, nodeLogLimit+tell, "ct status dnat jump original")
	d.nodeChain(h.chain+droppedSuffix, nil, "jump "+h.chain+toldSuffix, "drop")
	if h.answers() {
		// It may be of a connection that is open, which an answer would end.
		d.nodeChain(h.chain+rejectedSuffix, nil, "jump "+h.chain+toldSuffix, "ct state invalid drop", continues+"drop", "goto refuse")
	}
}

// marks returns the rules of a hook about Accepted: hooks that set it clear that of others, and those that have it let a
// packet pass clear it at the last place.
func (n *Node) marks(h *nodeHook) []string {
	accepted, clear := has("meta mark", n.Accepted), fmt.Sprintf(" meta mark set meta mark & %#x", ^n.Accepted)
	untracked, beforeNAT := &n.Traffic[policy.Untracked], len(n.Traffic[policy.BeforeNAT].Ingress) > 0
	switch {
	case h.untracks(), h.traffic == policy.BeforeNAT && len(untracked.Ingress) == 0:
		return []string{accepted + clear}
	case h.traffic == policy.Untracked:
	case h.traffic == policy.Forwarded && beforeNAT && h.ingress:
		return []string{accepted + " accept"}
	case h.traffic == policy.Forwarded && beforeNAT, h.Hook.Hook == "input" && (beforeNAT || len(untracked.Ingress) > 0), h.Hook.Hook == "output" && len(untracked.Egress) > 0:
		return []string{accepted + clear + " accept"}
	}
	return nil
}

// nodeChain adds a chain of the node.
func (d *dispatch) nodeChain(name string, hook *nft.Hook, rules ...string) {
	d.chains = append(d.chains, nft.NewChain(name, describe(name), hook, rules...))
}

// nodeRules returns the rules that a hook asks, behind the failsafes.
func (d *dispatch) nodeRules(n *NodeRules, h *nodeHook) (rules []string) {
	lists := n.lists(h)
	if len(lists) == 0 {
		return nil
	}
	rules = d.failsafes(n, h)
	for _, l := range lists {
		items := d.walk(walkKey{words: h.words, pass: "return"}).list(l.Rules)
		if slices.ContainsFunc(l.Rules, func(r *TierRule) bool { return r.Entries != "" }) {
			bare := d.walk(walkKey{words: h.words, pass: "return", bare: true})
			items = append([]*item{newItem("goto "+d.chain(partPrefix, bare.items(bare.listed(l.Rules))...), "ct state untracked ")}, items...)
		}
		to := "jump " + d.chain(nodePrefix, items...)
		for _, name := range l.Interfaces {
			if len(name) < unix.IFNAMSIZ { // no interface has another name, and nft refuses the whole table with it
				rules = append(rules, h.by(name)+to)
			}
		}
	}
	return rules
}

// by matches packets by an interface.
func (h *nodeHook) by(name string) string {
	switch {
	case name == "*":
		return ""
	case h.ingress:
		return "iifname " + ifname(name) + " "
	}
	return "oifname " + ifname(name) + " "
}

// failsafes returns the rules that accept what no rule of the node denies.
func (d *dispatch) failsafes(n *NodeRules, h *nodeHook) []string {
	rows := map[string][]string{}
	add := func(all []*TierRule, ports func(portList) string, end string) {
		for _, r := range all {
			d.sets[r.Peers] = d.peers[r.Peers]
			for _, p := range portLists(r.Ports) {
				rows[p.protocol] = append(rows[p.protocol], each(ports(p)+end+" @"+peersPrefix+r.Peers+"-%[1]s accept")...)
			}
		}
	}
	switch {
	case h.traffic == policy.Forwarded:
		return nil
	case h.ingress:
		add(n.In, portList.reached, sourceWord)
	default:
		add(n.Out, portList.reached, destinationWord)
	}
	switch {
	case h.untracks() && h.ingress:
		add(n.Out, portList.answering, sourceWord)
	case h.untracks():
		add(n.In, portList.answering, destinationWord)
	case h.Hook.Hook == postrouting:
		add(n.Out, portList.dialled, "ct original "+destinationWord)
	}
	undeniable, safe := undeniableOut, d.byProtocol(rows)
	if h.ingress {
		undeniable = undeniableIn
	}
	if h.traffic == policy.BeforeNAT { // what is dialled elsewhere is no failsafe
		safe = []string{"fib daddr type local jump " + d.chain(nodePrefix, newItem("", safe...))}
	}
	return append(d.byProtocol(undeniable), safe...)
}

// byProtocol returns rules that lead packets to those of their protocol alone; "" stands for every one.
func (d *dispatch) byProtocol(all map[string][]string) (rules []string) {
	var jumps []string
	for _, protocol := range slices.Sorted(maps.Keys(all)) {
		if protocol != "" {
			jumps = append(jumps, protocol+" : jump "+d.chain(nodePrefix, newItem("", all[protocol]...)))
		}
	}
	if len(jumps) > 0 {
		rules = []string{"meta l4proto vmap { " + strings.Join(jumps, " , ") + " }"}
	}
	return append(rules, all[""]...)
}

// UnconfirmedTimeout is how long the rules of the node that wait for confirmation count after the
// last HoldUnconfirmed. Without an agent nothing but the kernel can end them. It is safeguard.AwayLimit.
const UnconfirmedTimeout = time.Minute

// heldSet, with the family, has the node while the rules that wait for confirmation count.
const heldSet = "nodeheld"

// HoldUnconfirmed has the rules of the node that wait for confirmation count for another
// UnconfirmedTimeout. A write of the tables anew begins that where they do not count.
func (k InForce) HoldUnconfirmed(ctx context.Context) error {
	held := setsOf(heldSet)
	return cmp.Or(k.Tables.Renew(ctx, held[0]), k.Tables.Renew(ctx, held[1]))
}
