// Command enforcer measures what enforcement costs: connections and bytes through
// the rules of the real agent on the real kernel, beside a node without rules and
// one with rules as kube-router lays them out; compiling and applying policies;
// restarts; grants while everything changes. Each figure is one JSON line on the
// standard output; progress, and in the end each figure beside its target, is on the
// standard error.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/namegate/namegate/e2e/bench/ground"
)

// bench is what the measurements share.
type bench struct{ *ground.Ground }

// goals are the targets of the design: first of figures without a dataplane, then of each.
func goals() []ground.Goal {
	out := []ground.Goal{
		{Figure: "compile.full_ms", State: clusterState, Value: 300},
		{Figure: "flow.new_per_s", Peer: noRules, State: podsState, Least: 0.88},
		{Figure: "flow.new_per_s", Peer: linear, State: podsState, Least: 1.2},
		{Figure: "flow.new_per_s", Peer: noRules, State: podsState + byNftables, Least: 0.92},
		{Figure: "flow.crr_per_s", Peer: noRules, State: podsState, Least: 0.90},
		{Figure: "flow.crr_per_s", Peer: noRules, State: podsState + byNftables, Least: 0.95},
		{Figure: "flow.new_per_s", Peer: unruled, State: ownState, Least: 0.97},
		{Figure: "flow.new_per_s", Peer: unruled, State: podsOfOne, Least: 0.99},
		{Figure: "servername.first_byte_p99_us", Peer: direct, More: 1000},
		{Figure: "servername.throughput_gbps", Peer: direct, Least: 0.8},
	}
	for _, s := range steps {
		out = append(out, ground.Goal{Figure: "compile.change_ms", State: clusterState + ", " + s.name, Value: 5})
		if s.limit > 0 {
			out = append(out, ground.Goal{Figure: "apply.change_ms", State: clusterState + ", " + s.name, Value: s.limit})
		}
	}
	for _, d := range dataplanes {
		out = append(out,
			ground.Goal{Figure: "flow.rps", Peer: noRules, State: podsState + d.state, Least: 0.97},
			ground.Goal{Figure: "flow.new_per_s", Peer: noRules, State: ingressState + d.state, Least: 0.84},
			ground.Goal{Figure: "flow.throughput_gbps", Peer: noRules, State: podsState + d.state, Least: 0.97},
			ground.Goal{Figure: "restart.ready_ms", State: grantsState + d.state, Value: 400},
			ground.Goal{Figure: "agent.rss_mib", State: nodeState + d.state, Value: 50},
			ground.Goal{Figure: "agent.rss_mib", State: grantsState + d.state, Value: 80},
			ground.Goal{Figure: "agent.rss_mib", State: scaleState + ", changed" + d.state, Value: 110},
			ground.Goal{Figure: "grant.latency_p99_us", Peer: quiet, Rate: churnRate, State: churnState + d.state, Value: 5000},
			ground.Goal{Figure: "reuse.lost_connections", State: reuseState + d.state, Value: 0},
		)
	}
	return out
}

func main() {
	if len(os.Args) > 1 {
		if role, ok := roles[os.Args[1]]; ok {
			os.Exit(act(role, os.Args[2:]))
		}
	}
	b := &bench{}
	os.Exit(ground.Benchmark{
		Verb:    "bench-enforcer",
		Options: ground.Options{Rounds: 15, Span: 500 * time.Millisecond},
		Open:    func(g *ground.Ground) { b.Ground = g },
		Parts: []ground.Part{
			{Name: "compile", Run: b.compile},
			{Name: "apply", Run: b.apply},
			{Name: "restart", Run: b.eachDataplane(b.restart)},
			{Name: "churn", Run: b.eachDataplane(b.churn)},
			{Name: "reuse", Run: b.eachDataplane(b.reuse)},
			{Name: "scale", Run: b.eachDataplane(b.scale)},
			{Name: "flow", Run: b.flow},
			{Name: "ingress", Run: b.ingress},
			{Name: "nodes", Run: b.nodes},
			{Name: "servername", Run: b.serverNames},
		},
		Goals: goals(),
	}.Main())
}

// byNftables is the state of figures with the dataplane nftables.
const byNftables = ", dataplane nftables"

// dataplanes are measured each, with the end of a figure's state for it.
var dataplanes = []struct{ name, state string }{{"iptables", ""}, {"nftables", byNftables}}

// eachDataplane measures something on a node of each dataplane, with the end of the state.
func (b *bench) eachDataplane(measure func(dataplane, state string)) func() {
	return func() {
		for _, d := range dataplanes {
			measure(d.name, d.state)
			b.Clean()
		}
	}
}

// act runs a role of a child.
func act(role func([]string) error, args []string) int {
	if err := role(args); err != nil {
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
		return 2
	}
	return 0
}
