package main

import (
	"fmt"
	"path/filepath"

	"github.com/namegate/namegate/e2e/bench/dnsperf"
	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/process"
)

const (
	hours = 24
	// flatFrom is the hour that the last is compared with: until then pools and
	// caches fill.
	flatFrom = 8
	// namesPerHour are new names, asked within seconds: what an hour leaves behind
	// is in the agent all at once, where in an hour it would end one by one.
	namesPerHour = 10_000
)

// before is the state of an agent without queries.
const before = "before"

func hourState(n int) string { return fmt.Sprintf("hour %d", n) }

// memory measures what new names leave behind in the agent: its memory before, and
// after each of several hours' worth of names whose grants have ended.
func (b *bench) memory() error {
	g, err := b.gate(raised)
	if err != nil {
		return err
	}
	t := g.target()
	if err := b.wake(t); err != nil {
		return err
	}
	first, err := b.memoryAt(t, before, "", 0)
	if err != nil {
		return err
	}
	peer, size := before, first
	for hour := 1; hour <= hours; hour++ {
		if err := b.anHour(g, t); err != nil {
			return err
		}
		now, err := b.memoryAt(t, hourState(hour), peer, size)
		if err != nil {
			return err
		}
		if hour == flatFrom {
			peer, size = hourState(hour), now
		}
	}
	return nil
}

// memoryAt reports the agent's memory in MiB, and returns it.
func (b *bench) memoryAt(t target, state, peer string, peerSize float64) (float64, error) {
	size, err := process.RSS(t.pid)
	if err != nil {
		return 0, err
	}
	f := figure.Figure{Name: "agent.rss_mib", Value: float64(size) / (1 << 20), Unit: "MiB", State: state}
	if peer != "" {
		f = f.Against(peer, peerSize)
	}
	return f.Value, b.Report(f, 0)
}

// anHour asks for an hour's names and waits until their grants have ended.
func (b *bench) anHour(g *gate, t target) error {
	file := filepath.Join(b.Dir, "hour.txt")
	if err := writeQuestions(file, b.next, namesPerHour, newName); err != nil {
		return err
	}
	b.next += namesPerHour
	had, err := g.counters()
	if err != nil {
		return err
	}
	r, _, err := b.dnsperf(t, dnsperf.Run{File: file, Once: true, Rate: slowRate, Clients: clients, Outstanding: outstanding})
	if err != nil {
		return err
	}
	have, err := g.counters()
	if err != nil {
		return err
	}
	did, err := work(had, have, r.Good, false)
	if err != nil {
		return err
	}
	b.Note("memory: %d names in %.1f s, %d good answers%s", r.Sent, r.Took.Seconds(), r.Good, did)
	_, err = b.drain(t, have.Enforcer.Grants, had.Enforcer.Grants)
	return err
}
