// Command dns measures the agent's DNS beside its peers: the real agent on the
// real kernel, with policies, grants and audit on, a UDP echo in Go, CoreDNS and
// dnsmasq. Each figure is one JSON line on the standard output; progress, and in the
// end each figure beside its target, is on the standard error.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/namegate/namegate/e2e/bench/fake"
	"github.com/namegate/namegate/e2e/bench/ground"
	"github.com/namegate/namegate/testkit/fatal"
)

// bench is what the measurements share.
type bench struct {
	*ground.Ground
	coredns string
	gates   map[manner]*gate
	peers   *peers
	// next is the number of the next new name, files how many files of them were written.
	next, files int
}

// goals are the targets of the design.
var goals = []ground.Goal{
	{Figure: "dns.cached.cpu_us", Peer: udpEcho, Ratio: 1.45},
	{Figure: "dns.cached.cpu_us", Peer: corednsCache, Ratio: 0.45},
	{Figure: "dns.cached.cpu_us", Peer: dnsmasqCache, Ratio: 0.6},
	{Figure: "dns.cached.cpu_us", Peer: noSnapshots, State: withSnapshots, Ratio: 1.05},
	{Figure: "dns.forwarded.cpu_us", Peer: udpEcho, Ratio: 3.5},
	{Figure: "dns.forwarded.cpu_us", Peer: corednsForward, Ratio: 0.6},
	{Figure: "dns.forwarded.cpu_us", Peer: dnsmasqIPSet, Ratio: 0.6},
	{Figure: "dns.audit.cost", Peer: noAudit, Value: 8},
	{Figure: "dns.added_p99_us", Peer: direct, Rate: 30, Value: 500},
	{Figure: "dns.added_p99_us", Peer: direct, Rate: 5000, Value: 1000},
	{Figure: "dns.neighbour_p99_us", Peer: noFlood, Rate: neighbourRate, More: 2000},
	{Figure: "agent.rss_mib", Peer: hourState(flatFrom), State: hourState(hours), Ratio: 1.1}, // flat
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == serveWord {
		os.Exit(serve(os.Args[2], os.Args[3]))
	}
	b := &bench{gates: map[manner]*gate{}}
	os.Exit(ground.Benchmark{
		Verb:    "bench-dns",
		Options: ground.Options{Rounds: 5, Span: 2 * time.Second},
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&b.coredns, "coredns", "bin/cluster/coredns", "CoreDNS's binary (e2e/cluster/tools/build)")
		},
		Open: func(g *ground.Ground) {
			b.Ground = g
			var err error
			b.coredns, err = ground.Program(b.coredns)
			fatal.If(b, err)
		},
		Close: b.remove,
		Parts: []ground.Part{
			{Name: "memory", Run: b.memory}, // first: of an agent that has done nothing yet
			{Name: "cached", Run: b.cached},
			{Name: "snapshots", Run: b.snapshots},
			{Name: "forwarded", Run: b.forwarded},
			{Name: "audit", Run: b.audit},
			{Name: "latency", Run: b.latency},
			{Name: "fairness", Run: b.fairness},
		},
		Goals: goals,
	}.Main())
}

// serveWord begins the command line of a child that is one of the fake servers.
const serveWord = "serve"

func serve(which, at string) int {
	addr, err := netip.ParseAddrPort(at)
	if err == nil {
		err = fake.Serve(addr, fake.Responders[which])
	}
	fmt.Fprintln(os.Stderr, "bench: "+err.Error())
	return 2
}

// remove takes everything down and goes on after errors.
func (b *bench) remove() error {
	var errs []error
	for _, g := range b.gates {
		errs = append(errs, g.remove())
	}
	if b.peers != nil {
		errs = append(errs, b.peers.remove())
	}
	return errors.Join(errs...)
}
