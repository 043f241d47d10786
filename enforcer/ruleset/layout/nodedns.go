package layout

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/namegate/namegate/enforcer/ruleset/lists"
	"github.com/namegate/namegate/kernel/nft"
	"github.com/namegate/namegate/kernel/nft/timed"
)

// The queries of the node's own sockets to the resolvers of the host are led to the agent in the
// output hook. A chain of type route translates the destination before conntrack, over TCP by flows as
// for pods: the kernel routes the packet again. The agent's reply crosses the loopback interface; its
// source becomes the dialled resolver there. Packets
// of the agent's own sockets have a mark, and go where they are sent.
//
// The kernel does not route the packets of a socket that is bound to a device or is in a VRF to another
// device. Such packets are noted. Over UDP they get the dialled destination again behind routing; over TCP
// the connection fails.

// NodeDNS is the interception of the node's own queries.
type NodeDNS struct {
	// Resolvers maps each intercepted resolver of the host to the address on which this
	// generation serves the node's queries to it.
	Resolvers map[netip.Addr]netip.Addr
	// Predecessor maps serving addresses of an agent that ends to the resolvers: its replies are
	// given back, no query is led to it.
	Predecessor map[netip.Addr]netip.Addr
	// Mark is the packet mark of the agent's own sockets: exactly this value.
	Mark uint32
	// LoopTest is LoopTestDigits decimal digits, with which the first labels of the names of this agent's
	// tests for loops begin; "" for no tests.
	LoopTest string
}

const (
	// LoopTestLabel is the length of the first label of a name that tests for loops. Its bytes
	// and its length are two halves of 8 bytes: the first has the digits of the agent.
	LoopTestLabel = 15
	// LoopTestDigits is how many of its digits are those of the agent.
	LoopTestDigits = 7
)

// The objects of the node's DNS. The sets are of the layout, the chains of states with NodeDNS.
const (
	nodeInterceptMap = "nodeintercept" // resolvers to serving addresses
	nodeGiveBackMap  = "nodegiveback"  // the inverse
	nodeServingSet   = "nodeserving"   // the serving addresses
	loopTestSet      = "nodelooptest"  // beginnings of names that test for loops
	// testedSet, with the family, has the resolvers to which sockets without the mark sent
	// names that test for loops, and the rest of the first label.
	testedSet = "nodetested"
	// unledSet, with the family, has the users and interfaces of queries that could not be led, and
	// the serving address of the resolver.
	unledSet = "nodeunled"

	nodeInterceptChain = nodePrefix + "intercept"
	nodeUnledChain     = nodePrefix + "unled"
	nodeGuardChain     = nodePrefix + "guard"
)

const (
	testedFor, maxTested = 10 * time.Second, 256
	unledFor, maxUnled   = 10 * time.Minute, 256
)

// The first label of the name in a DNS query over UDP, behind the headers of UDP (64 bits, RFC 768)
// and DNS (96 bits, RFC 1035 §4.1.1): its length and seven bytes, and eight further bytes.
const (
	nameBegin = "@th,160,64"
	nameRest  = "@th,224,64"
)

// nodeDNS makes the chains.
func (d *dispatch) nodeDNS(n *NodeDNS) {
	if n == nil {
		return
	}
	add := func(name string, hook nft.Hook, rules ...string) {
		d.nodeChain(name, &hook, rules...)
	}
	own := fmt.Sprintf("meta mark %#x return", n.Mark)
	add(nodeInterceptChain, nft.Hook{Type: "route", Hook: "output", Priority: interceptPriority}, append([]string{"th dport != " + dnsPort + " return", "meta l4proto != { tcp, udp } return", own}, lists.Each(
		"meta l4proto udp "+nameBegin+" @"+loopTestSet+" update @"+testedSet+"%[1]s { %[2]s daddr . "+nameRest+" }",
		"udp dport @alive "+toNodeServer,
		"tcp dport @alive "+opening+toNodeServer+"goto dnsflow",
		opening+toNodeServer+"goto dnsforget",
		"meta l4proto tcp "+toNodeServer+"goto dnsfollow")...)...)
	// Most packets have another port. The port is read of every protocol, whose name is asked after it.
	add(nodeUnledChain, nft.Hook{Type: "filter", Hook: "postrouting", Priority: giveBackPriority}, append([]string{"th dport != " + dnsPort + " return", "meta l4proto != { tcp, udp } return", `oifname "lo" return`}, lists.Each(
		"%[2]s daddr @"+nodeServingSet+"%[1]s update @"+unledSet+"%[1]s { meta skuid . oifname . %[2]s daddr }",
		"meta l4proto udp %[2]s daddr set %[2]s daddr map @"+nodeGiveBackMap+"%[1]s")...)...)
	// Every client of a serving address of the node is the node. Agents listen there on the port of DNS alone.
	add(nodeGuardChain, nft.Hook{Type: "filter", Hook: "input", Priority: verdictPriority}, append([]string{"th dport != " + dnsPort + " return", `iifname "lo" return`}, lists.Each(
		"%[2]s daddr @"+nodeServingSet+"%[1]s drop")...)...)
}

// nodeDNS adds the elements.
func (m elements) nodeDNS(n *NodeDNS) {
	if n == nil {
		return
	}
	m.formers(n.Resolvers, n.Predecessor)
	for dialled, serving := range n.Resolvers {
		m.lead(nodeInterceptMap, dialled, serving)
		m.lead(nodeGiveBackMap, serving, dialled)
		m.Add(nodeServingSet+timed.Suffix(serving), serving.String())
	}
	for serving, dialled := range n.Predecessor {
		if dialled.IsValid() {
			m.lead(nodeGiveBackMap, serving, dialled)
			m.Add(nodeServingSet+timed.Suffix(serving), serving.String())
		}
	}
	if len(n.LoopTest) == LoopTestDigits {
		m.Add(loopTestSet, "0x"+strings.TrimLeft(hex.EncodeToString(append([]byte{LoopTestLabel}, n.LoopTest...)), "0"))
	}
}

// NodeServing returns the addresses to which the kernel leads the node's own queries now, by the
// resolver, also those that another agent wrote.
func (k InForce) NodeServing(ctx context.Context) (map[netip.Addr]netip.Addr, error) {
	return k.pairs(ctx, nodeInterceptMap)
}

// LoopTested returns the addresses to which sockets without the agent's mark sent a query over UDP
// whose first label is the digits of NodeDNS.LoopTest and rest, in the last ten seconds.
func (k InForce) LoopTested(ctx context.Context, rest string) ([]netip.Addr, error) {
	number, out := "0x"+hex.EncodeToString([]byte(rest)), []netip.Addr(nil)
	all, err := k.Tables.Elements(ctx, Inet, setsOf(testedSet)...)
	for _, e := range all {
		if a, err := netip.ParseAddr(e.Key[0]); err == nil && len(e.Key) == 2 && e.Key[1] == number {
			out = append(out, a)
		}
	}
	return out, err
}

// Unled is a query of the node's own that could not be led to the agent: its socket is bound to a
// device, or is in a VRF.
type Unled struct {
	UID   uint32 // of the socket
	Iface string // by which the query left
	// Resolver was dialled.
	Resolver netip.Addr
}

// Unled returns the users and interfaces of such queries of the last ten minutes, sorted.
func (k InForce) Unled(ctx context.Context) ([]Unled, error) {
	all, err := k.Tables.Elements(ctx, Inet, setsOf(unledSet)...)
	if err != nil {
		return nil, err
	}
	dialled, err := k.pairs(ctx, nodeGiveBackMap)
	if err != nil {
		return nil, err
	}
	var out []Unled
	for _, e := range all {
		if len(e.Key) != 3 {
			continue
		}
		uid, err := strconv.ParseUint(e.Key[0], 10, 32)
		serving, badAddr := netip.ParseAddr(e.Key[2])
		if resolver, known := dialled[serving]; err == nil && badAddr == nil && known {
			out = append(out, Unled{uint32(uid), strings.Trim(e.Key[1], `"`), resolver})
		}
	}
	slices.SortFunc(out, func(a, b Unled) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), strings.Compare(a.Iface, b.Iface), a.Resolver.Compare(b.Resolver))
	})
	return slices.Compact(out), nil
}
