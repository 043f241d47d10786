package layout

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/namegate/namegate/kernel/nft"
)

// The rules of the node judge what its own sockets send: what begins a connection, and untracked
// packets, of TCP those with SYN alone. They are in a base chain of the output hook, which forwarded packets do not pass, and
// which is there with such rules alone. They admit nothing: a connection that is open stays open.

// Node are the ordered rules of the node.
type Node struct {
	// ID is of equal rules alone, with the Renew of their entry sets.
	ID string
	NodeRules
	// Confirmed count in place of NodeRules while HoldUnconfirmed is not called, nil: NodeRules
	// always count.
	Confirmed *NodeRules
}

// NodeRules are the rules of the node in order.
type NodeRules struct {
	// Failsafes accept what is dialled, and what is reached, whatever the other rules are. Their
	// peers are networks.
	Failsafes       []*TierRule
	Admin, Baseline []*TierRule
}

// The chains of the node's rules.
const (
	nodePrefix = "node-" // of the chains

	nodeChain      = nodePrefix + "output"
	confirmedChain = nodePrefix + "confirmed"
	auditedChain   = nodePrefix + "audited"  // logs what begins a connection
	toldChain      = nodePrefix + "told"     // counts and logs what is denied
	rejectedChain  = nodePrefix + "rejected" // denies with an answer
	droppedChain   = nodePrefix + "dropped"  // denies without one
	nodeNamedChain = nodePrefix + "named"    // namedChain of the node
)

// nodeSubject is the word for the node in keys of entries: its loopback address, whatever address
// a packet comes from.
const nodeSubject = "%[4]s"

// nodeVerdicts are those of the node's rules that decide.
var nodeVerdicts = [...]string{Accept: "accept", Reject: "goto " + rejectedChain, Drop: "goto " + droppedChain}

// nodeLogLimit bounds the log of the node.
const nodeLogLimit = podLogLimit

// The names of chains that judge what the node sends end with these.
const (
	dialledSuffix  = "dialled" // the node and failsafes, where what was dialled is translated
	protocolSuffix = "to-"     // before the protocol: the chains that packets of it come to first
)

// local accepts packets to the node itself, which leave by another interface where a rule of
// the output hook has led them there: a Service, or the interception of DNS. Other packets to
// the node leave by lo.
const local = "fib daddr type local accept"

// undeniableByNode are packets that no rule of the node denies, by protocol as policy.Protocol writes it
// (58 is ICMPv6, 2 is IGMP): without them the node has no link or no address. A host is also a
// router to its pods. ICMPv6 2 says that a packet is too big.
var undeniableByNode = map[string][]string{
	"58": {
		"icmpv6 type { 133, 134, 135, 136, 137 } ip6 hoplimit 255 accept",
		"icmpv6 type { 130, 131, 132, 143 } ip6 daddr ff00::/8 accept", "icmpv6 type 2 accept",
	},
	"2":   {"ip daddr 224.0.0.0/4 accept"},
	"tcp": {"tcp dport " + dnsPort + " " + local},
	"udp": {local, "udp sport 68 udp dport 67 accept", "udp sport 546 udp dport 547 accept"},
}

// begun are packets of connections of TCP that began before: connection tracking does not know some of them, as
// those that it forgot, or that another program exempts, also those of others to the node.
const begun = "tcp flags & (syn | ack) != syn return"

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
	d.nodeChain(toldChain, nil, "counter name "+deniedCounter, nodeLogLimit+" jump tell", "ct status dnat jump original")
	d.nodeChain(rejectedChain, nil, "jump "+toldChain, "goto refuse")
	d.nodeChain(droppedChain, nil, "jump "+toldChain, "drop")
	d.nodeChain(nodeNamedChain, nil, namedRules("accept")...)
	rules := []string{"ct state established,related,invalid return", `oifname "lo" return`, begun}
	if n.Confirmed != nil {
		d.nodeChain(confirmedChain, nil, d.nodeRules(*n.Confirmed, confirmedChain+"-")...)
		rules = append(rules, each("%[4]s != @"+heldSet+"%[1]s goto "+confirmedChain)...)
	}
	rules = append(rules, d.nodeRules(n.NodeRules, nodePrefix)...)
	d.nodeChain(nodeChain, &nft.Hook{Type: "filter", Hook: "output", Priority: verdictPriority}, rules...)
}

// nodeChain adds a chain of the node.
func (d *dispatch) nodeChain(name string, hook *nft.Hook, rules ...string) {
	d.chains = append(d.chains, nft.NewChain(name, describe(name), hook, rules...))
}

// nodeRules returns the rules of a chain that judges what the node sends. The names of the chains
// that they lead to begin with prefix.
func (d *dispatch) nodeRules(n NodeRules, prefix string) []string {
	byProtocol := map[string][]string{}
	for protocol, rules := range undeniableByNode {
		byProtocol[protocol] = slices.Clone(rules)
	}
	dialled, reached := []string{local}, []string(nil)
	for _, r := range n.Failsafes {
		d.sets[r.Peers] = d.peers[r.Peers]
		for _, p := range portLists(r.Ports) {
			at := " @" + peersPrefix + r.Peers + "-%[1]s accept"
			dialled = append(dialled, each(p.dialled()+"ct original %[2]s daddr"+at)...)
			if p.protocol == "" {
				reached = append(reached, each("%[2]s daddr"+at)...)
			} else {
				byProtocol[p.protocol] = append(byProtocol[p.protocol], each(p.reached()+"%[2]s daddr"+at)...)
			}
		}
	}
	d.nodeChain(prefix+dialledSuffix, nil, dialled...)
	// A packet asks the rules of its protocol alone.
	var jumps []string
	for _, protocol := range slices.Sorted(maps.Keys(byProtocol)) {
		d.nodeChain(prefix+protocolSuffix+protocol, nil, byProtocol[protocol]...)
		jumps = append(jumps, protocol+" : jump "+prefix+protocolSuffix+protocol)
	}
	rules := slices.Concat([]string{"meta l4proto vmap { " + strings.Join(jumps, " , ") + " }"}, reached, []string{"ct status dnat jump " + prefix + dialledSuffix})

	d.first = nil
	next := "goto " + d.chain(restPrefix, d.list(n.Baseline, "accept", true)...)
	bare := "goto " + d.chain(restPrefix, d.untracked(n.Baseline, "accept", true)...)
	untracked := newItem("goto "+d.chain(partPrefix, d.untracked(n.Admin, bare, true)...), "ct state untracked ")
	for _, i := range append([]*item{untracked}, d.list(n.Admin, next, true)...) {
		rules = append(rules, i.texts...)
	}
	return rules
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
