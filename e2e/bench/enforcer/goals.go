package main

import "github.com/namegate/namegate/e2e/bench/ground"

// goals are the targets, as far as this benchmark measures them.
var goals = []ground.Goal{
	{Figure: "compile.full_ms", State: clusterState(spaces[0]), Value: 1000},
	{Figure: "compile.change_ms", State: clusterState(spaces[0]), Value: 10},
	{Figure: "compile.cluster_full_ms", State: clusterRulesState(""), Value: 300},
	{Figure: "compile.cluster_change_ms", State: clusterRulesState("names"), Value: 5},
	{Figure: "compile.cluster_change_ms", State: clusterRulesState("networks"), Value: 5},
	{Figure: "apply.cluster_change_ms", State: clusterRulesState("names"), Value: 50},
	{Figure: "apply.cluster_change_ms", State: clusterRulesState("networks"), Value: 50},
	{Figure: "peers.compile_ms", State: peersState, Value: 1000},
	{Figure: "peers.change_ms", State: peerComes, Value: 20},
	{Figure: "peers.change_ms", State: peerGoes, Value: 20},
	{Figure: "peers.change_deltas", State: peersState, Value: 1},
	{Figure: "agent.rss_mib", State: peersState, Value: 150},
	{Figure: "agent.rss_mib", State: grantsState, Value: 80},
	{Figure: "agent.rss_mib", State: grantsState + dataplaneStates[1].state, Value: 80},
	{Figure: "agent.rss_mib", Peer: expire, State: peakState("iptables"), Value: 80},
	{Figure: "agent.rss_mib", Peer: expire, State: peakState(byNftables), Value: 80},
	{Figure: "reuse.cpu_percent", State: reuseState("iptables", longTTL), Value: 1},
	{Figure: "reuse.cpu_percent", State: reuseState(byNftables, longTTL), Value: 1},
	{Figure: "reuse.lost_connections", Peer: expire, State: briefState("iptables")},
	{Figure: "reuse.lost_connections", Peer: expire, State: briefState(byNftables)},
	{Figure: "restart.ready_ms", State: grantsState, Value: 400},
	{Figure: "restart.ready_ms", State: grantsState + dataplaneStates[1].state, Value: 400},
	{Figure: "grant.latency_p99_us", Peer: quiet, State: churnState, Value: 5000},
	{Figure: "grant.latency_p99_us", Peer: quiet, State: churnState + dataplaneStates[1].state, Value: 5000},
	{Figure: "flow.new_per_s", Peer: guarded, State: clusterRulesOf(110), Least: 0.95},
	{Figure: "flow.new_per_s", Peer: noRules, State: podsState(110), Least: 0.80},
	{Figure: "flow.new_per_s", Peer: linear, State: podsState(110), Least: 1.25},
	{Figure: "flow.new_per_s", Peer: noRules, State: nftablesState(110), Least: 0.90},
	{Figure: "flow.crr_per_s", Peer: noRules, State: nftablesState(110), Least: 0.95},
	{Figure: "flow.crr_per_s", Peer: noRules, State: podsState(110), Least: 0.88},
	{Figure: "flow.rps", Peer: noRules, State: podsState(110), Least: 0.97},
}
