package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/load"
	"github.com/namegate/namegate/e2e/lab"
)

const (
	// floodRate is what one pod asks of the agent a second, far beyond what it may.
	floodRate = 20_000
	// neighbourRate is what its neighbour asks.
	neighbourRate = 200
	fairSpan      = 3 * time.Second
	// floodPatience keeps the flood's ids apart; its answers do not matter.
	floodPatience = time.Second
	// floodHead is how long the flood runs before the neighbour is measured.
	floodHead = 300 * time.Millisecond
)

// fairness measures a pod's answers while its neighbour floods, with the limits
// that an agent has by default, and without the flood.
func (b *bench) fairness() error {
	g, err := b.gate(usual)
	if err != nil {
		return err
	}
	resolver := netip.AddrPortFrom(lab.Resolver4, 53)
	quiet := target{name: neighbour, pid: g.pid, pod: g.Pod(neighbour).Host, at: resolver}
	loud := target{name: "the flood", pid: g.pid, pod: g.Pod(client).Host, at: resolver}
	for _, t := range []target{quiet, loud} {
		if err := b.wake(t); err != nil {
			return err
		}
	}
	var calm, flooded, lost figure.Series
	for round := range b.options.rounds {
		for k := range 2 {
			flood := (k+round)%2 == 0
			r, others, err := b.neighbour(quiet, loud, flood)
			if err != nil {
				return err
			}
			b.Note("neighbour, flooded %t, round %d: %s; others took %.0f %% of a core", flood, round+1, brief(r), others*100)
			p99 := figure.Reading{Value: figure.Quantile(r.Latencies, 0.99), Others: others}
			if flood {
				flooded = append(flooded, p99)
				lost = append(lost, figure.Reading{Value: float64(r.Lost+r.Bad) / float64(r.Sent), Others: others})
			} else {
				calm = append(calm, p99)
			}
		}
	}
	f := figure.Figure{Name: "dns.neighbour_p99_us", Value: flooded.Median(), Unit: "us", Rate: neighbourRate}
	if err := b.Report(f.Against("no-flood", calm.Median()), max(flooded.Others(), calm.Others())); err != nil {
		return err
	}
	return b.Report(figure.Figure{Name: "dns.neighbour_lost", Value: lost.Median(), Unit: "share", Rate: neighbourRate}, lost.Others())
}

// neighbour measures the neighbour once, with the flood or without.
func (b *bench) neighbour(quiet, loud target, flood bool) (r load.Result, others float64, err error) {
	m, err := b.measure(quiet)
	if err != nil {
		return r, 0, err
	}
	if flood {
		r, err = b.besides(quiet, loud)
	} else {
		r, err = b.load(quiet, b.plan(neighbourRate, fairSpan))
	}
	if err != nil {
		return r, 0, err
	}
	_, others, err = m.end(0)
	return r, others, err
}

// besides measures the neighbour while the flood runs.
func (b *bench) besides(quiet, loud target) (load.Result, error) {
	flood := b.plan(floodRate, floodHead+fairSpan)
	flood.Patience = floodPatience
	type outcome struct {
		load.Result
		err error
	}
	end := make(chan outcome, 1)
	go func() {
		r, err := b.load(loud, flood)
		end <- outcome{r, err}
	}()
	plan := b.plan(neighbourRate, fairSpan)
	plan.Delay = floodHead
	r, err := b.load(quiet, plan)
	o := <-end
	if err == nil && o.err != nil {
		err = fmt.Errorf("flood: %w", o.err)
	}
	b.Note("the flood: %d sent, %d answered well, %d not well", o.Sent, len(o.Latencies), o.Bad)
	return r, err
}
