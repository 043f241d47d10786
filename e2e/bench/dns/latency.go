package main

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/ground"
	"github.com/namegate/namegate/e2e/bench/load"
	"github.com/namegate/namegate/e2e/lab"
)

const (
	// sockets are how many the load is spread over, as over a pod's clients.
	sockets = 8
	// patience is after how long a question counts as lost.
	patience = time.Second
)

// tempo is a rate at which added latency is measured, and for how long in each
// round: p99 needs samples.
type tempo struct {
	rate int
	span time.Duration
	// together takes the agent and the peer at the same time: at a small rate they
	// do not disturb each other.
	together bool
}

var paces = []tempo{{30, 10 * time.Second, true}, {5000, 3 * time.Second, false}}

// latency measures what the agent adds to a forwarded answer: new names through the
// agent beside new names asked of the same upstream directly.
func (b *bench) latency() error {
	g, err := b.gate(raised)
	if err != nil {
		return err
	}
	if err := b.startPeers(); err != nil {
		return err
	}
	direct := target{name: "direct", pod: b.peers.Pod(client).Host, at: netip.AddrPortFrom(lab.Resolver4, 53)}
	both := []target{g.target(), direct}
	for _, t := range both {
		if err := b.wake(t); err != nil {
			return err
		}
	}
	for _, p := range paces {
		if err := b.added(both, p); err != nil {
			return err
		}
	}
	return nil
}

// added measures at one rate.
func (b *bench) added(both []target, p tempo) error {
	var p99 [2]figure.Series
	for round := range b.options.rounds {
		m, err := b.measure(both[0])
		if err != nil {
			return err
		}
		results, err := b.pace(both, []load.Plan{b.plan(p.rate, p.span), b.plan(p.rate, p.span)}, p.together, round)
		if err != nil {
			return err
		}
		_, others, err := m.end(0)
		if err != nil {
			return err
		}
		for i, t := range both {
			p99[i] = append(p99[i], figure.Reading{Value: figure.Quantile(results[i].Latencies, 0.99), Others: others})
			b.Note("latency%s %s round %d: %s; others took %.0f %% of a core", at(p.rate), t.name, round+1, brief(results[i]), others*100)
		}
	}
	through, direct := p99[0].Median(), p99[1].Median()
	f := figure.Figure{Name: "dns.added_p99_us", Value: through - direct, Unit: "us", Rate: p.rate}
	return b.Report(f.Against(both[1].name, direct), p99[0].Others())
}

// plan is a schedule of new names.
func (b *bench) plan(rate int, span time.Duration) load.Plan {
	count := int(float64(rate) * span.Seconds())
	first := b.next
	b.next += count
	return load.Plan{Rate: rate, Count: count, Patience: patience, Name: func(n int) string { return newName(first + n) }}
}

// pace carries plans out at two targets, at the same time or one after the other,
// each in turn first.
func (b *bench) pace(at []target, plans []load.Plan, together bool, round int) (results [2]load.Result, err error) {
	if !together {
		for k := range 2 {
			i := (k + round) % 2
			if results[i], err = b.load(at[i], plans[i]); err != nil {
				return results, err
			}
		}
		return results, nil
	}
	plans[1].Delay = time.Second / time.Duration(plans[1].Rate) / 2
	var errs [2]error
	var wait sync.WaitGroup
	for i := range 2 {
		wait.Go(func() { results[i], errs[i] = b.load(at[i], plans[i]) })
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return results, err
		}
	}
	return results, nil
}

// load carries a plan out from a target's pod.
func (b *bench) load(t target, p load.Plan) (load.Result, error) {
	var conns []net.Conn
	for range sockets {
		c, err := t.pod.Dial("udp", t.at.String(), time.Second)
		if err != nil {
			return load.Result{}, fmt.Errorf("ask %s: %w", t.name, err)
		}
		conns = append(conns, c)
	}
	r, err := load.Run(b.Context, conns, p)
	if b.Context.Err() != nil {
		return r, ground.ErrInterrupted
	}
	if err == nil && len(r.Latencies) == 0 {
		err = fmt.Errorf("%s gave no good answer: %d sent, %d lost, %d refused", t.name, r.Sent, r.Lost, r.Bad)
	}
	return r, err
}

// brief is a result in a few words.
func brief(r load.Result) string {
	q := func(share float64) float64 { return figure.Quantile(r.Latencies, share) }
	return fmt.Sprintf("median %.0f µs, p99 %.0f µs, most %.0f µs (after %.2f s); of %d lost %d, bad %d", q(0.5), q(0.99), q(1), r.Worst.Seconds(), r.Sent, r.Lost, r.Bad)
}
