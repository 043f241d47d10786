package layout

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/namegate/namegate/enforcer/ruleset/lists"
)

// Connections of DNS over TCP are translated packet by packet like UDP queries, before other programs
// exempt packets from connection tracking. The SYN adds a flow with the server, so that the connection
// keeps it when the dead-man switch or the agent changes. Answers of the agent renew the flow: a pod
// cannot keep one by itself.

const (
	// flowsSet, with the family, has the source, the port and the serving address of connections.
	flowsSet = "dnsflows"
	// formerMap leads from a serving address to that of the agent before, for the same resolver.
	formerMap = "dnsformer"
	// flowSharesSet has the pods that opened connections lately: each has a share of the flows.
	flowSharesSet = "dnsshare"
	// flowlessSet holds the pods with a connection that was dropped because it got no flow.
	flowlessSet = "dnsrefused"
)

const (
	// flowTimeout is longer than an agent keeps a silent connection.
	flowTimeout = 20 * time.Second
	// flowLimit bounds the connections that a pod opens, and so its flows, to a hundredth of maxFlows.
	flowLimit = "limit rate over 50/second burst 200 packets"
	maxFlows  = 1 << 17
	// formers is how many agents before this one may still serve open connections.
	formers = 2
)

const (
	flow = "%[2]s saddr . tcp sport . %[2]s daddr"
	// opening matches a segment that begins a connection at a server.
	opening = "tcp flags & (syn | ack) == syn "
	// answered renews the flow of a segment with an answer.
	answered     = "tcp flags psh %[2]s daddr . tcp dport . %[2]s saddr @" + flowsSet + "%[1]s update @" + flowsSet + "%[1]s { %[2]s daddr . tcp dport . %[2]s saddr }"
	toServer     = "%[2]s daddr set %[2]s daddr map @intercept%[1]s "
	toNodeServer = "%[2]s daddr set %[2]s daddr map @" + nodeInterceptMap + "%[1]s "
)

// flowChains lead segments to port 53 from the chain dnstcp.
func (l *builder) flowChains() {
	l.chain("dnsfull", "notes and drops a connection without room", append(lists.Each("%[2]s saddr @known%[1]s update @"+flowlessSet+"%[1]s { %[2]s saddr }"), "drop")...)
	l.chain("dnsflow", "adds or renews a connection of DNS over TCP", append(lists.Each("update @"+flowsSet+"%[1]s { "+flow+" } return"), "goto dnsfull")...)
	// Sources that are no known pods' could be made up without end: they have one share.
	l.chain("dnsshare", "bounds the connections of a pod", append(lists.Each(
		"%[2]s saddr @known%[1]s update @"+flowSharesSet+"%[1]s { %[2]s saddr "+flowLimit+" } goto dnsfull",
		"%[2]s saddr != @known%[1]s update @"+flowSharesSet+"%[1]s { %[4]s "+flowLimit+" } goto dnsfull"), "goto dnsflow")...)
	// Both begin at the serving address of this agent, and end at the resolver unless there is a flow.
	l.chain("dnsfollow", "finds the agent of an open connection", eachServer("%[2]s saddr . tcp sport . %[2]s daddr @"+flowsSet+"%[1]s return")...)
	l.chain("dnsforget", "ends the record of an old connection", eachServer("delete @"+flowsSet+"%[1]s { "+flow+" }")...)
	l.chain("dnssyn", "leads a new connection to the agent", slices.Concat([]string{"jump bypass"}, leads("tcp", toServer+"goto dnsshare"), lists.Each(toServer+"goto dnsforget"))...)
	l.chain("dnstcp", "DNS over TCP", append([]string{opening + "goto dnssyn"}, lists.Each(toServer+"goto dnsfollow")...)...)
}

// leads are the rules about the packets that are led to the agent, with what to do.
func leads(protocol, do string) []string {
	return lists.Each(
		protocol+" dport @alive %[2]s saddr @intercepted%[1]s "+do,
		protocol+" dport @alive %[2]s saddr @known%[1]s %[2]s daddr @endpoint%[1]s "+do,
		protocol+` dport @alive iifname != "lo" `+unknown+" "+do)
}

// eachServer are rules that apply one to the serving address of each agent in turn.
func eachServer(rule string) []string {
	out := lists.Each(rule)
	for range formers {
		out = slices.Concat(out, lists.Each("%[2]s daddr set %[2]s daddr map @"+formerMap+"%[1]s"), lists.Each(rule))
	}
	return append(out, lists.Each("%[2]s daddr set %[2]s daddr map @giveback%[1]s", "%[2]s daddr set %[2]s daddr map @"+nodeGiveBackMap+"%[1]s")...)
}

// formers adds the elements that lead from the serving addresses of resolvers to those of earlier agents.
func (m elements) formers(resolvers, predecessor map[netip.Addr]netip.Addr) {
	last := maps.Clone(resolvers)
	for _, serving := range slices.SortedFunc(maps.Keys(predecessor), netip.Addr.Compare) {
		if dialled := predecessor[serving]; last[dialled].IsValid() && last[dialled] != serving {
			m.lead(formerMap, last[dialled], serving)
			last[dialled] = serving
		}
	}
}

// Flowless returns the pods with a connection of DNS over TCP that was dropped in the last ten
// minutes, because the pod or all pods together opened too many, sorted.
func (k InForce) Flowless(ctx context.Context) ([]netip.Addr, error) {
	return k.addrs(ctx, Inet, flowlessSet)
}

// A load balancer in pods' sockets makes their queries leave for a pod behind the
// resolver, and no packet of theirs ever bears the address that is intercepted. Such
// packets are noted, and nothing else is done about them: a pod may also ask one of
// the pods behind a resolver by itself.

const (
	// answeringSet, with the family, has the addresses that answer behind the resolvers.
	answeringSet = "answering"
	// bypassingSet, with the family, holds the pods that asked one of these.
	bypassingSet = "bypassing"
	// bypassingFor is how long one is remembered, maxBypassing how many: more than
	// a node has pods.
	bypassingFor = 10 * time.Minute
	maxBypassing = 4096
)

// bypassRule notes a packet as the pod sent it, before any translation.
const bypassRule = "%[2]s daddr . th dport @" + answeringSet + "%[1]s %[2]s saddr @intercepted%[1]s update @" + bypassingSet + "%[1]s { %[2]s saddr }"

// Bypassing returns the intercepted pods that sent DNS queries to an address behind a
// resolver in the last ten minutes, sorted.
func (k InForce) Bypassing(ctx context.Context) ([]netip.Addr, error) {
	return k.addrs(ctx, Inet, bypassingSet)
}
