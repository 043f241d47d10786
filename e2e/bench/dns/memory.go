package main

import (
	"fmt"

	"github.com/namegate/namegate/e2e/bench/dnsperf"
	"github.com/namegate/namegate/e2e/bench/figure"
	"github.com/namegate/namegate/e2e/bench/process"
	"github.com/namegate/namegate/testkit/fatal"
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
