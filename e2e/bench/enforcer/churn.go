package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/namegate/namegate/e2e/bench/dnsperf"
	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/testkit/fatal"
)

const (
	// churnPods are selected; another pod becomes selected, or is so no more, each churnEvery.
	churnPods  = 110
	churnEvery = 100 * time.Millisecond
	// churnRate are the new names a second that one pod asks for, in all churnNames.
	churnRate, churnNames = 500, 1500
	// churnRounds bounds the rounds: each makes grants that stay.
	churnRounds = 5
	// quiet is the peer: the same questions while nothing changes.
	quiet = "quiet"
)

var churnState = fmt.Sprintf("%d pods, one changes each %s", churnPods, churnEvery)

// churn measures how long answers with new grants take while pods come and go.
func (b *bench) churn(dataplane, state string) {
	n := b.newNode("churn-", dataplane, true)
	b.guard(n, scattered, chosen(churnPods))
	series := map[bool]figure.Series{} // by whether pods change
	for round := range min(b.Rounds, churnRounds) {
		for k := range 2 {
			changes := (k+round)%2 == 0
			r := b.churned(n, 2*round+k, changes)
			p99 := figure.Quantile(r.Latencies, 0.99)
			b.Note("churn %t, round %d: p99 %.0f µs; %d of %d queries got a good answer", changes, round+1, p99, r.Good, r.Sent)
			series[changes] = append(series[changes], figure.Reading{Value: p99})
		}
	}
	f := figure.Figure{Name: "grant.latency_p99_us", Value: series[true].Median(), Unit: "us", Rate: churnRate, State: churnState + state}
	b.Report(f.Against(quiet, series[false].Median()), 0)
}

// churned lets the client ask for new names, while pods change or not.
func (b *bench) churned(n *node, turn int, changes bool) dnsperf.Result {
	stop, stopped := make(chan struct{}), make(chan error, 1)
	if changes {
		go func() { stopped <- n.stir(stop) }()
	} else {
		stopped <- nil
	}
	r, err := b.asPod(n, n.Pod(client).Addr4, churnNames, churnRate, func(i int) string {
		return fmt.Sprintf("n%d.set-%d.bench.test", turn*churnNames+i, i%portSets)
	})
	close(stop)
	fatal.If(b, errors.Join(err, <-stopped))
	return r
}

// stir makes one pod more and one less selected, in turn, until it is stopped, and
// leaves it as it was.
func (n *node) stir(stop <-chan struct{}) error {
	all := chosen(churnPods)
	defer func() { _ = n.agent.Write(manifests(all)) }()
	for turn := 0; ; turn++ {
		selected := all
		if turn%2 == 0 {
			// The first is not the client, which is in the middle.
			selected = all[1:]
		}
		if err := n.agent.Write(manifests(selected)); err != nil {
			return err
		}
		select {
		case <-stop:
			return nil
		case <-time.After(churnEvery):
		}
	}
}

const (
	// reuseTTL are the times of a grant of which reconnects span many.
	reuseTTL = "\nspec:\n  ttl: {minSeconds: 1, maxSeconds: 2, graceSeconds: 1, inUse: Renew}\n"
	// reconnects is how often the client that resolves once connects, to all addresses together.
	reconnects = 10_000
	// reuseNames have an address of each family; reuseEvery is how often the client connects to
	// each address.
	reuseNames = 50
	reuseEvery = 500 * time.Millisecond
)

var reuseState = fmt.Sprintf("%d reconnects", reconnects)

// reuse measures whether addresses in use stay open: the client resolves names once, and
// connects to their addresses for many times of a grant.
func (b *bench) reuse(dataplane, state string) {
	n := b.newNode("reuse-", dataplane, true)
	b.guard(n, scattered, chosen(1))
	files := manifests(chosen(1))
	files["policies.yaml"] = strings.ReplaceAll(files["policies.yaml"], "\nspec:\n", reuseTTL)
	fatal.If(b, n.agent.Apply(files))
	var used []netip.AddrPort
	for i := range 2 * reuseNames {
		name, qtype := fmt.Sprintf("used-%d.set-%d.bench.test.", i/2, portSets/2), []uint16{dns.TypeA, dns.TypeAAAA}[i%2]
		b.Resolve(n.Pod(client).Host, resolver, name, qtype)
		used = append(used, addressOf(name, qtype))
	}
	lost := 0
	err := n.Pod(client).Do(func() error {
		begun := time.Now()
		for i := range reconnects {
			select {
			case <-b.Context.Done():
				return b.Context.Err()
			case <-time.After(time.Until(begun.Add(time.Duration(i) * reuseEvery / time.Duration(len(used))))):
			}
			if connectOnce(used[i%len(used)]) != nil {
				lost++
			}
		}
		return nil
	})
	fatal.If(b, err)
	f := figure.Figure{Name: "reuse.lost_connections", Value: float64(lost), Unit: "connections", State: reuseState + state}
	b.Note("%s, %s: %d", f.Name, f.State, lost)
	b.Report(f, 0)
}

// addressOf is the address that a name has, with a port that the client may connect to.
func addressOf(name string, qtype uint16) netip.AddrPort {
	var ip []byte
	switch rr := scattered(new(dns.Msg).SetQuestion(name, qtype)).Answer[0].(type) {
	case *dns.A:
		ip = rr.A
	case *dns.AAAA:
		ip = rr.AAAA
	}
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a, sinkPort)
}

// connectOnce opens a connection and ends it with a reset, so that no port of the client waits.
// Go's poller is not asked: a call less for each.
func connectOnce(at netip.AddrPort) error {
	fd, to, err := socketTo(at)
	if err != nil {
		return err
	}
	return errors.Join(
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience),
		unix.Connect(fd, to), unix.Close(fd))
}
