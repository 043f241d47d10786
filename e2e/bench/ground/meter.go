package ground

import (
	"fmt"
	"os"
	"time"

	"github.com/namegate/namegate/e2e/bench/process"
)

// Meter measures processor time from its start on.
type Meter struct {
	server int
	ours   []int
	before spent
	began  time.Time
}

// spent is processor time used so far: by a server, by the benchmark's own processes, by all.
type spent struct{ server, ours, busy time.Duration }

// NewMeter starts a meter of a server, 0 for none. ours are processes of the benchmark beside
// its own one that run all the time.
func NewMeter(server int, ours ...int) (*Meter, error) {
	m := &Meter{server: server, ours: append(ours, os.Getpid()), began: time.Now()}
	var err error
	m.before, err = m.read()
	return m, err
}

func (m *Meter) read() (s spent, err error) {
	if m.server != 0 {
		if s.server, err = process.CPU(m.server); err != nil {
			return s, fmt.Errorf("the measured server ended: %w", err)
		}
	}
	for _, pid := range m.ours {
		d, err := process.CPU(pid)
		if err != nil {
			return s, fmt.Errorf("a part of the benchmark ended: %w", err)
		}
		s.ours += d
	}
	s.busy, err = process.Busy()
	return s, err
}

// End returns the processor time of the server since the start, and that of unrelated
// processes in shares of a core. used is the time of the benchmark's processes that began and
// ended meanwhile.
func (m *Meter) End(used time.Duration) (server time.Duration, others float64, err error) {
	after, err := m.read()
	if err != nil {
		return 0, 0, err
	}
	server = after.server - m.before.server
	rest := after.busy - m.before.busy - (after.ours - m.before.ours) - server - used
	// The times are in ticks: a difference may be a little below zero.
	return server, max(0, rest.Seconds()/time.Since(m.began).Seconds()), nil
}
