package main

import (
	"errors"
	"fmt"
	"time"

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
