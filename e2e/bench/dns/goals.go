package main

import (
	"github.com/namegate/namegate/e2e/bench/ground"
)

// goals are the targets, as far as this benchmark measures them.
var goals = []ground.Goal{
	{Figure: "dns.cached.cpu_us", Peer: udpEcho, Ratio: 1.6},
	{Figure: "dns.cached.cpu_us", Peer: corednsCache, Ratio: 0.55},
	{Figure: "dns.cached.cpu_us", Peer: dnsmasqCache, Ratio: 0.9},
	{Figure: "dns.cached.cpu_us", Peer: noSnapshots, State: withSnapshots, Ratio: 1.05},
	{Figure: "dns.forwarded.cpu_us", Peer: udpEcho, Ratio: 3},
	{Figure: "dns.forwarded.cpu_us", Peer: corednsForward, Ratio: 0.7},
	{Figure: "dns.forwarded.cpu_us", Peer: dnsmasqIPSet, Ratio: 0.6},
	{Figure: "dns.audit.cost", Peer: noAudit, Value: 10},
	{Figure: "dns.added_p99_us", Peer: "direct", Rate: 30, Value: 1000},
	{Figure: "dns.added_p99_us", Peer: "direct", Rate: 5000, Value: 5000},
	{Figure: "agent.rss_mib", Peer: hourState(flatFrom), State: hourState(hours), Ratio: 1.1}, // flat
	{Figure: "dns.neighbour_p99_us", Peer: "no-flood", Rate: neighbourRate, More: 2000},
}
