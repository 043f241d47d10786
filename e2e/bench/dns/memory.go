package main

import (
	"fmt"

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
	namesPerHour, hourRate = 10_000, 5000
)

func hourState(n int) string { return fmt.Sprintf("hour %d", n) }

// memory measures what new names leave behind in the agent: its memory after each of several
// hours' worth of names whose grants have ended.
func (b *bench) memory() error {
	g, err := b.gate(manner{limits: raised})
	if err != nil {
		return err
	}
	t := g.target()
	if err := b.wake(t); err != nil {
		return err
	}
	peer, size := "", 0.0
	for hour := 1; hour <= hours; hour++ {
		file, err := b.newQuestions(namesPerHour)
		if err != nil {
			return err
		}
		if _, err := b.sample(t, dnsperf.Run{File: file, Rate: hourRate}); err != nil {
			return err
		}
		f := figure.Figure{Name: "agent.rss_mib", Unit: "MiB", State: hourState(hour)}
		if f.Value, err = process.RSS(t.pid); err != nil {
			return err
		}
		if peer != "" {
			f = f.Against(peer, size)
		}
		if err := b.Report(f, 0); err != nil {
			return err
		}
		if hour == flatFrom {
			peer, size = hourState(hour), f.Value
		}
	}
	return nil
}
