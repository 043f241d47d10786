package main

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/namegate/namegate/e2e/bench/dnsperf"
	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/process"
	"github.com/namegate/namegate/e2e/lab"
	"github.com/namegate/namegate/testkit/fatal"
)

// paces are the rates at which added latency is measured, and for how long in each
// round: p99 needs samples.
var paces = []struct {
	rate int
	span time.Duration
	// together takes the agent and the peer at the same time: at a small rate they
	// do not disturb each other.
	together bool
}{{30, 10 * time.Second, true}, {5000, 3 * time.Second, false}}

// direct is the peer of the agent: its upstream, asked without the agent.
const direct = "direct"

// latency measures what the agent adds to a forwarded answer: new names through the
// agent beside new names asked of the same upstream directly.
func (b *bench) latency() {
	g := b.gate(manner{limits: raised})
	b.startPeers()
	both := []target{g.target(), {name: direct, pod: b.peers.Pod(client).Host, at: resolver}}
	b.wake(both...)
	for _, p := range paces {
		var p99 [2]figure.Series
		for round := range b.Rounds {
			m := b.meter(both[0])
			values, used := b.pace(both, p.rate, p.span, p.together, round)
			_, others := m.End(used)
			for i, value := range values {
				p99[i] = append(p99[i], figure.Reading{Value: value, Others: others})
			}
			b.Note("latency at %d q/s round %d: p99 %.0f µs, %s %.0f µs; others took %.0f %% of a core", p.rate, round+1, values[0], direct, values[1], others*100)
		}
		through, peer := p99[0].Median(), p99[1].Median()
		f := figure.Figure{Name: "dns.added_p99_us", Value: through - peer, Unit: "us", Rate: p.rate}
		b.Report(f.Against(direct, peer), p99[0].Others())
	}
}

// pace asks two targets at a rate, at the same time or one after the other, each in turn
// first. It returns the 99th percentile of each, and the processor time of the clients.
func (b *bench) pace(at []target, rate int, span time.Duration, together bool, round int) (p99 [2]float64, used time.Duration) {
	var results [2]dnsperf.Result
	var errs [2]error
	var running sync.WaitGroup
	for k := range 2 {
		i := (k + round) % 2
		file := b.newQuestions(int(float64(rate) * span.Seconds()))
		running.Go(func() {
			if results[i], errs[i] = b.paced(at[i], file, rate); errs[i] == nil {
				p99[i] = figure.Quantile(results[i].Latencies, 0.99)
			}
		})
		if !together {
			running.Wait()
		}
	}
	running.Wait()
	for _, err := range errs {
		fatal.If(b, err)
	}
	return p99, results[0].CPU + results[1].CPU
}

// paced asks for the names of a file at a rate, without waiting for answers: a server that
// stalls delays every query meanwhile.
func (b *bench) paced(t target, file string, rate int) (dnsperf.Result, error) {
	r, err := b.ask(t, dnsperf.Run{File: file, Rate: rate, Each: true, Clients: 8, Outstanding: 20_000})
	if err != nil {
		return r, fmt.Errorf("%s at %d q/s: %w", t.name, rate, err)
	}
	return r, nil
}

const (
	// floodRate is what one pod asks of the agent a second, far beyond its limits.
	floodRate = 20_000
	// neighbourRate is what its neighbour asks.
	neighbourRate = 200
	fairSpan      = 3 * time.Second
	// floodHead is how long the flood runs before the neighbour is measured.
	floodHead = 300 * time.Millisecond
	// noFlood is the peer: the neighbour alone.
	noFlood = "no-flood"
)

// resolver is the address that pods ask.
var resolver = netip.AddrPortFrom(lab.Resolver4, 53)

// fairness measures a pod's answers while its neighbour floods, with the limits
// that an agent has by default, and without the flood.
func (b *bench) fairness() {
	g := b.gate(manner{})
	quiet := target{name: neighbour, pid: g.pid, pod: g.Pod(neighbour).Host, at: resolver}
	loud := target{name: "the flood", pid: g.pid, pod: g.Pod(client).Host, at: resolver}
	b.wake(quiet, loud)
	series := map[bool]figure.Series{} // by whether there is a flood
	for round := range b.Rounds {
		for k := range 2 {
			flood := (k+round)%2 == 0
			p99 := b.beside(quiet, loud, flood)
			b.Note("neighbour, flooded %t, round %d: p99 %.0f µs; others took %.0f %% of a core", flood, round+1, p99.Value, p99.Others*100)
			series[flood] = append(series[flood], p99)
		}
	}
	f := figure.Figure{Name: "dns.neighbour_p99_us", Value: series[true].Median(), Unit: "us", Rate: neighbourRate}
	b.Report(f.Against(noFlood, series[false].Median()), max(series[true].Others(), series[false].Others()))
}

// beside measures the neighbour once, with the flood or without.
func (b *bench) beside(quiet, loud target, flood bool) figure.Reading {
	file := b.newQuestions(int(neighbourRate * fairSpan.Seconds()))
	m := b.meter(quiet)
	var flooding sync.WaitGroup
	var floods dnsperf.Result
	var floodErr error
	if flood {
		names := b.newQuestions(int(floodRate * (floodHead + fairSpan).Seconds()))
		flooding.Go(func() {
			floods, floodErr = b.ask(loud, dnsperf.Run{File: names, For: floodHead + fairSpan, Rate: floodRate, Clients: clients, Outstanding: 50_000})
		})
		time.Sleep(floodHead)
	}
	r, err := b.paced(quiet, file, neighbourRate)
	flooding.Wait()
	if err == nil {
		err = floodErr
	}
	fatal.If(b, err)
	_, others := m.End(r.CPU + floods.CPU)
	b.Note("neighbour: %d of %d queries got a good answer; %d of %d of the flood", r.Good, r.Sent, floods.Good, floods.Sent)
	return figure.Reading{Value: figure.Quantile(r.Latencies, 0.99), Others: others}
}

const (
	hours = 24
	// flatFrom is the hour that the last is compared with: until then pools and
	// caches fill.
	flatFrom = 8
	// namesPerHour are new names, asked within seconds: what an hour leaves behind
	// is in the agent all at once, where in an hour it would end one by one.
	namesPerHour, hourRate = 10_000, 5000
)

func hourState(n int) string { return fmt.Sprintf("hour %d", n) }

// memory measures what new names leave behind in the agent: its memory after each of several
// hours' worth of names whose grants have ended.
func (b *bench) memory() {
	g := b.gate(manner{limits: raised})
	t := g.target()
	b.wake(t)
	peer, base := "", 0.0
	for hour := 1; hour <= hours; hour++ {
		file := b.newQuestions(namesPerHour)
		b.sample(t, dnsperf.Run{File: file, Rate: hourRate})
		f := figure.Figure{Name: "agent.rss_mib", Unit: "MiB", State: hourState(hour)}
		size, err := process.RSS(t.pid)
		fatal.If(b, err)
		f.Value = size
		if peer != "" {
			f = f.Against(peer, base)
		}
		b.Report(f, 0)
		if hour == flatFrom {
			peer, base = hourState(hour), f.Value
		}
	}
}
