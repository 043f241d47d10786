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

	"github.com/namegate/namegate/enforcer/ruleset/lists"
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
	// Audited are rules of which those that deny are of Audit policies: what they match is logged. nil: none.
	Audited *NodeRules
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

// nodeHook is where the kernel asks the rules of one traffic and direction.
type nodeHook struct {
	chain string
	nft.Hook
	traffic policy.Traffic
	ingress bool
	*lists.Words
	begin []string // rules before those of NodeRules, for packets that are not judged
	logs  bool     // it asks Audited, and lets everything pass
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
	lists.Each("%[2]s saddr @known%[1]s return", "%[2]s daddr @known%[1]s return", "%[2]s saddr @podrange%[1]s return", "%[2]s daddr @podrange%[1]s return", "%[2]s daddr @"+servingSet+"%[1]s return"))

// unrelatedIn and unrelatedOut are those of a direction.
var (
	unrelatedIn  = append([]string{`iifname "lo" return`, "iifname @" + boundSet + " return", "fib daddr type != local return"}, unrelated...)
	unrelatedOut = append([]string{`oifname "lo" return`, "oifname @" + boundSet + " return"}, unrelated...)
	unaskedIn    = append([]string{"ct state != new return", begun}, unrelatedIn...)
	unaskedOut   = append([]string{"ct state != new return", begun}, unrelatedOut...)
)

// arriving are packets that arrive and are not judged before translation, incoming those of what comes to the node.
var (
	arriving = []string{`iifname "lo" return`, "ct state != new return", begun}
	incoming = []string{"ct state established,related,invalid return", `iifname "lo" return`, begun}
)

// newNodeHook returns a hook. accept is its verdict of rules that accept.
func newNodeHook(name string, hook nft.Hook, traffic policy.Traffic, ingress bool, accept string, begin ...string) nodeHook {
	chain, w := nodePrefix+name, &lists.Words{Named: nodeNamedChain, Subject: lists.Node, Peer: lists.Destination}
	w.Verdicts = [...]string{Accept: accept, Reject: "goto " + chain + rejectedSuffix, Drop: "goto " + chain + droppedSuffix}
	if ingress {
		w.Peer = lists.Source
	}
	h := nodeHook{chain, hook, traffic, ingress, w, begin, false}
	if !h.answers() {
		w.Verdicts[Reject] = w.Verdicts[Drop]
	}
	return h
}

// answers tells whether a packet can be answered there.
func (h *nodeHook) answers() bool { return h.traffic <= policy.Forwarded && h.Hook.Hook != postrouting }

// untracks tells whether it comes before connection tracking.
func (h *nodeHook) untracks() bool {
	return h.Priority == untrackedPriority || h.Priority == untrackedAuditPriority
}

const postrouting = "postrouting"

// nodeHooks are all of them. The interface by which a packet leaves is known at output unless its destination is
// translated there. The kernel asks a chain of the nat type about the first packet of a connection alone: others that the
// node forwards do not come to it.
var nodeHooks = []nodeHook{
	newNodeHook("untrackedin", nft.Hook{Type: "filter", Hook: "prerouting", Priority: untrackedPriority}, policy.Untracked, true, "goto "+notrackChain, unrelatedIn...),
	newNodeHook("untrackedout", nft.Hook{Type: "filter", Hook: "output", Priority: untrackedPriority}, policy.Untracked, false, "goto "+notrackChain, unrelatedOut...),
	// What passed as an answer of a failsafe and answers nothing is asked again. It is tracked whatever accepts it.
	newNodeHook("unaskedin", nft.Hook{Type: "filter", Hook: "prerouting", Priority: beforeNATPriority}, policy.Untracked, true, "accept", unaskedIn...),
	newNodeHook("unaskedout", nft.Hook{Type: "filter", Hook: "output", Priority: beforeNATPriority}, policy.Untracked, false, "accept", unaskedOut...),
	newNodeHook("beforenat", nft.Hook{Type: "filter", Hook: "prerouting", Priority: beforeNATPriority}, policy.BeforeNAT, true, "goto "+acceptedChain, arriving...),
	newNodeHook("arriving", nft.Hook{Type: "filter", Hook: "forward", Priority: arrivingPriority}, policy.Forwarded, true, "accept", open...),
	newNodeHook("leaving", nft.Hook{Type: "filter", Hook: "forward", Priority: leavingPriority}, policy.Forwarded, false, "accept", open...),
	newNodeHook("input", nft.Hook{Type: "filter", Hook: "input", Priority: verdictPriority}, policy.Local, true, "accept", incoming...),
	newNodeHook("output", nft.Hook{Type: "filter", Hook: "output", Priority: verdictPriority}, policy.Local, false, "accept", "ct state established,related,invalid return", "ct status dnat return", "oifname \"lo\" return", begun),
	newNodeHook("translated", nft.Hook{Type: "nat", Hook: postrouting, Priority: translatedPriority}, policy.Local, false, "accept",
		"ct state != new return", "ct status & dnat == 0 return", "oifname \"lo\" return", "fib saddr type != local return", begun),
}

// auditHooks are those of Audit policies, which let everything pass. What sockets send in Local is logged as they dial it: the
// kernel has no addresses of names that Audit policies accept. Those for which a packet has the mark of one that was
// accepted come before the hooks that end it, others behind the hooks that deny.
var auditHooks = []nodeHook{
	newAuditHook("untrackedin", nft.Hook{Type: "filter", Hook: "prerouting", Priority: untrackedAuditPriority}, policy.Untracked, true, unrelatedIn...),
	newAuditHook("untrackedout", nft.Hook{Type: "filter", Hook: "output", Priority: untrackedAuditPriority}, policy.Untracked, false, unrelatedOut...),
	newAuditHook("unaskedin", nft.Hook{Type: "filter", Hook: "prerouting", Priority: beforeNATAuditPriority}, policy.Untracked, true, unaskedIn...),
	newAuditHook("unaskedout", nft.Hook{Type: "filter", Hook: "output", Priority: beforeNATAuditPriority}, policy.Untracked, false, unaskedOut...),
	newAuditHook("beforenat", nft.Hook{Type: "filter", Hook: "prerouting", Priority: beforeNATAuditPriority}, policy.BeforeNAT, true, arriving...),
	newAuditHook("arriving", nft.Hook{Type: "filter", Hook: "forward", Priority: auditPriority}, policy.Forwarded, true, open...),
	newAuditHook("leaving", nft.Hook{Type: "filter", Hook: "forward", Priority: auditPriority}, policy.Forwarded, false, open...),
	newAuditHook("input", nft.Hook{Type: "filter", Hook: "input", Priority: auditPriority}, policy.Local, true, incoming...),
}

// newAuditHook returns a hook of Audit policies.
func newAuditHook(name string, hook nft.Hook, traffic policy.Traffic, ingress bool, begin ...string) nodeHook {
	h := newNodeHook("audit-"+name, hook, traffic, ingress, "accept", begin...)
	h.logs, h.Verdicts[Reject], h.Verdicts[Drop] = true, "goto "+h.chain+toldSuffix, "goto "+h.chain+toldSuffix
	return h
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
		"udp": append(slices.Concat(podsQueries, lists.Each("udp sport "+dnsPort+" %[2]s saddr @"+nodeInterceptMap+"%[1]s accept")), "udp sport 67 udp dport 68 accept", "udp sport 547 udp dport 546 accept"),
	}
	podsQueries  = lists.Each("th dport " + dnsPort + " %[2]s daddr @" + servingSet + "%[1]s %[2]s saddr @known%[1]s accept")
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
	d.First = nil
	d.nodeChain(nodeNamedChain, nil, namedRules("accept")...)
	d.nodeChain(acceptedChain, nil, fmt.Sprintf("meta mark set meta mark | %#x accept", n.Accepted))
	d.nodeChain(notrackChain, nil, fmt.Sprintf("meta mark set meta mark | %#x notrack accept", n.Accepted))
	for i := range nodeHooks {
		h := &nodeHooks[i]
		rules, asked, relayed := n.marks(h), n.lists(h), d.relayed(n, h)
		if len(asked) == 0 && len(relayed) == 0 && (len(rules) == 0 || h.traffic > policy.Forwarded) {
			continue
		}
		d.denials(h)
		d.nodeChain(h.chain, &h.Hook, slices.Concat(rules, h.begin, relayed, d.judged(n, h))...)
	}
	for i := range auditHooks {
		if h := &auditHooks[i]; n.Audited != nil && len(n.Audited.lists(h)) > 0 {
			number := 2 + 2*int(h.traffic)
			if h.ingress {
				number++
			}
			d.nodeChain(h.chain+toldSuffix, nil, append(loggedOnce(number, "accept", nodeLogLimit+" ", logRule(h.logPrefix(nflog.PrefixNodeAudited))), "accept")...)
			d.nodeChain(h.chain, &h.Hook, slices.Concat(n.marks(h), h.begin, d.nodeRules(n.Audited, h))...)
		}
	}
}

// logPrefix is the prefix of what is logged, behind another.
func (h *nodeHook) logPrefix(of string) string {
	direction := "egress"
	if h.ingress {
		direction = "ingress"
	}
	return fmt.Sprintf("%s%s %s ", of, h.traffic, direction)
}

// judged returns the rules of a hook, while others wait for confirmation those that are confirmed.
func (d *dispatch) judged(n *Node, h *nodeHook) (rules []string) {
	if len(n.lists(h)) > 0 && n.Confirmed != nil {
		rules = lists.Each("%[4]s != @" + heldSet + "%[1]s goto " + d.Chain(nodePrefix, lists.NewItem("", d.nodeRules(n.Confirmed, h)...)))
	}
	return append(rules, d.nodeRules(&n.NodeRules, h)...)
}

// denials makes the chains of a hook that deny.
func (d *dispatch) denials(h *nodeHook) {
	tell := " jump tell"
	if h.traffic != policy.Local || h.ingress {
		tell = " " + logRule(h.logPrefix(nflog.PrefixNode))
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
	passes := h.traffic == policy.Forwarded && beforeNAT || h.traffic == policy.Local &&
		(h.Hook.Hook == "input" && (beforeNAT || len(untracked.Ingress) > 0) || h.Hook.Hook == "output" && len(untracked.Egress) > 0)
	switch {
	case passes && (h.logs || h.traffic == policy.Forwarded && h.ingress):
		return []string{accepted + " accept"}
	case passes:
		return []string{accepted + clear + " accept"}
	case !h.logs && (h.untracks() || h.traffic == policy.BeforeNAT && len(untracked.Ingress) == 0):
		return []string{accepted + clear}
	}
	return nil
}

// nodeChain adds a chain of the node.
func (d *dispatch) nodeChain(name string, hook *nft.Hook, rules ...string) {
	d.Chains = append(d.Chains, nft.NewChain(name, describe(name), hook, rules...))
}

// nodeRules returns the rules that a hook asks, behind the failsafes.
func (d *dispatch) nodeRules(n *NodeRules, h *nodeHook) (rules []string) {
	asked := n.lists(h)
	if len(asked) == 0 {
		return nil
	}
	rules = d.failsafes(n, h)
	for _, l := range asked {
		items := d.List(h.Words, l.Rules, "return")
		if slices.ContainsFunc(l.Rules, func(r *TierRule) bool { return r.Entries != "" }) {
			items = append([]*lists.Item{lists.NewItem("goto "+d.Chain(lists.PartPrefix, d.Bare(h.Words, l.Rules, "return")...), "ct state untracked ")}, items...)
		}
		to := "jump " + d.Chain(nodePrefix, items...)
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
	add := func(all []*TierRule, ports func(lists.PortList) string, end string) {
		for _, r := range all {
			d.Ask(r.Peers)
			for _, p := range lists.PortLists(r.Ports) {
				rows[p.Protocol] = append(rows[p.Protocol], lists.Each(ports(p)+end+" @"+lists.PeersPrefix+r.Peers+"-%[1]s accept")...)
			}
		}
	}
	switch {
	case h.traffic == policy.Forwarded:
		return nil
	case h.ingress:
		add(n.In, lists.PortList.Reached, lists.Source)
	default:
		add(n.Out, lists.PortList.Reached, lists.Destination)
	}
	switch {
	case h.untracks() && h.ingress:
		add(n.Out, lists.PortList.Answering, lists.Source)
	case h.untracks():
		add(n.In, lists.PortList.Answering, lists.Destination)
	case h.Hook.Hook == postrouting:
		add(n.Out, lists.PortList.Dialled, "ct original "+lists.Destination)
	}
	undeniable, safe := undeniableOut, d.byProtocol(rows)
	if h.ingress {
		undeniable = undeniableIn
	}
	if h.traffic == policy.BeforeNAT { // what is dialled elsewhere is no failsafe
		safe = []string{"fib daddr type local jump " + d.Chain(nodePrefix, lists.NewItem("", safe...))}
	}
	return append(d.byProtocol(undeniable), safe...)
}

// byProtocol returns rules that lead packets to those of their protocol alone; "" stands for every one.
func (d *dispatch) byProtocol(all map[string][]string) (rules []string) {
	var jumps []string
	for _, protocol := range slices.Sorted(maps.Keys(all)) {
		if protocol != "" {
			jumps = append(jumps, protocol+" : jump "+d.Chain(nodePrefix, lists.NewItem("", all[protocol]...)))
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
