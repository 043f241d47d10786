package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/ground"
	"github.com/namegate/namegate/e2e/bench/load"
	"github.com/namegate/namegate/e2e/lab"
)

const (
	// churnPods are selected, churnEvery is how often another pod becomes selected, or
	// is so no more.
	churnPods  = 110
	churnEvery = 100 * time.Millisecond
	// churnRate are the new names a second that one pod asks for.
	churnRate = 500
	churnSpan = 3 * time.Second
	// quiet is the peer: the same questions while nothing changes.
	quiet = "quiet"
)

var churnState = fmt.Sprintf("%s, one changes each %s", podsState(churnPods), churnEvery)

// churn measures how long answers with new grants take while pods come and go.
func (b *bench) churn() error {
	for _, d := range dataplaneStates {
		if err := b.churnOn(d.dataplane, d.state); err != nil {
			return fmt.Errorf("dataplane %s: %w", d.dataplane, err)
		}
	}
	return nil
}

func (b *bench) churnOn(dataplane, state string) (err error) {
	b.Note("churn: building a node with %d pods, dataplane %s", maxPods, dataplane)
	n, err := b.newNode("churn-"+dataplane, clientNumber, true)
	if err != nil {
		return err
	}
	n.dataplane = dataplane
	defer func() { err = errors.Join(err, n.remove()) }()
	if err := b.guard(n, scattered); err != nil {
		return err
	}
	if err := n.choose(chosen(churnPods)); err != nil {
		return err
	}
	next := 0
	var calm, busy figure.Series
	for round := range min(b.rounds, 5) {
		for k := range 2 {
			changes := (k+round)%2 == 0
			r, err := b.asked(n, &next, changes)
			if err != nil {
				return err
			}
			b.Note("churn %t, round %d: median %.0f µs, p99 %.0f µs, most %.0f µs; of %d lost %d, bad %d", changes, round+1,
				figure.Quantile(r.Latencies, 0.5), figure.Quantile(r.Latencies, 0.99), figure.Quantile(r.Latencies, 1), r.Sent, r.Lost, r.Bad)
			p99 := figure.Reading{Value: figure.Quantile(r.Latencies, 0.99)}
			if changes {
				busy = append(busy, p99)
			} else {
				calm = append(calm, p99)
			}
		}
	}
	f := figure.Figure{Name: "grant.latency_p99_us", Value: busy.Median(), Unit: "us", Rate: churnRate, State: churnState + state}
	return b.Report(f.Against(quiet, calm.Median()), 0)
}

// asked lets the client ask for new names, while pods change or not.
func (b *bench) asked(n *node, next *int, changes bool) (load.Result, error) {
	c, err := n.Pod(client).Dial("udp", netip.AddrPortFrom(lab.Resolver4, 53).String(), time.Second)
	if err != nil {
		return load.Result{}, err
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		if !changes {
			stopped <- nil
			return
		}
		stopped <- n.stir(stop)
	}()
	first, count := *next, int(churnRate*churnSpan.Seconds())
	*next += count
	r, err := load.Run(b.Context, []net.Conn{c}, load.Plan{Rate: churnRate, Count: count, Patience: 5 * time.Second, Name: func(i int) string {
		return fmt.Sprintf("n%d.set-%d.bench.test", first+i, i%portSets)
	}})
	close(stop)
	if b.Context.Err() != nil {
		err = ground.ErrInterrupted
	}
	if err == nil && len(r.Latencies) == 0 {
		err = errors.New("no name was answered")
	}
	return r, errors.Join(err, <-stopped)
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
