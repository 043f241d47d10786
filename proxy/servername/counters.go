package servername

import "sync/atomic"

// Stats are the relay's totals, and what is open.
type Stats struct {
	Connections, Hellos int // open; those of them that wait for a hello
	Checked, Unread     uint64
	Denied              map[Reason]uint64
	DialFailures        uint64
	Misdirected         uint64 // connections that were not led here, or to the relay itself
}

// counters are the running totals.
type counters struct {
	Checked, Unread, DialFailures, Misdirected atomic.Uint64
	denied                                     map[Reason]*atomic.Uint64 // has each reason
}

func newCounters() counters {
	return counters{denied: map[Reason]*atomic.Uint64{ReasonPolicy: {}, ReasonServerName: {}, ReasonLimit: {}, ReasonRevoked: {}, ReasonShutdown: {}}}
}

// Stats returns the totals so far.
func (r *Relay) Stats() Stats {
	c := &r.counters
	s := Stats{Checked: c.Checked.Load(), Unread: c.Unread.Load(), DialFailures: c.DialFailures.Load(), Misdirected: c.Misdirected.Load(), Denied: map[Reason]uint64{}}
	for by, n := range c.denied {
		s.Denied[by] = n.Load()
	}
	r.shares.mu.Lock()
	defer r.shares.mu.Unlock()
	s.Connections, s.Hellos = r.shares.all.connections, r.shares.all.hellos
	return s
}
