package ground

import (
	"os"
	"time"

	"github.com/namegate/namegate/e2e/bench/process"
	"github.com/namegate/namegate/testkit/fatal"
)

// Meter measures processor time from its start on.
type Meter struct {
	ground *Ground
	server int
	ours   []int
	before spent
	began  time.Time
}

// spent is processor time used so far: by a server, by the benchmark's own processes, by all.
type spent struct{ server, ours, busy time.Duration }

// NewMeter starts a meter of a server, 0 for none. ours are processes of the benchmark beside
// its own one that run all the time.
func (g *Ground) NewMeter(server int, ours ...int) *Meter {
	m := &Meter{ground: g, server: server, ours: append(ours, os.Getpid()), began: time.Now()}
	m.before = m.read()
	return m
}

func (m *Meter) read() (s spent) {
	var err error
	if m.server != 0 {
		s.server, err = process.CPU(m.server)
		fatal.If(m.ground, err)
	}
	for _, pid := range m.ours {
		d, err := process.CPU(pid)
		fatal.If(m.ground, err)
		s.ours += d
	}
	s.busy, err = process.Busy()
	fatal.If(m.ground, err)
	return s
}

// End returns the processor time of the server since the start, and that of unrelated
// processes in shares of a core. used is the time of the benchmark's processes that began and
// ended meanwhile.
func (m *Meter) End(used time.Duration) (server time.Duration, others float64) {
	after := m.read()
	server = after.server - m.before.server
	rest := after.busy - m.before.busy - (after.ours - m.before.ours) - server - used
	// The times are in ticks: a difference may be a little below zero.
	return server, max(0, rest.Seconds()/time.Since(m.began).Seconds())
}
